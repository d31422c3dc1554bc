"""The in-process engine, which compiles TFF computations and runs them here."""
