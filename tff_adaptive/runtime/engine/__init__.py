"""The in-process engine: compiles TFF computations and runs them."""
