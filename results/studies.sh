# For the studies' scripts to source, from the project's folder, after they have
# set `runs` and, for tasks that read files, `data`:
#
#   study NAME FLAG...    one `main.py sweep` into $runs/NAME, and its report
#
# What was interrupted goes on when a script is started again. In the environment
# WORKERS is how many runs go at once (0: one after another in one process), and
# SEEDS are numbers with commas between.
seeds=${SEEDS:-0}

study() {
  name=$1
  shift
  ${PYTHON:-python} main.py sweep --experiment_name="$name" \
    --root_output_dir="$runs" ${data:+"--cache_dir=$data"} \
    --workers="${WORKERS:-0}" --rounds_per_checkpoint=100 \
    --axis=seed="$seeds" "$@"
  ${PYTHON:-python} main.py report "$runs/$name"
}

# The presets PAPER/TASK/METHOD of several methods, with commas between.
presets() { # PAPER/TASK, METHOD...
  below=$1
  shift
  list=
  for method in "$@"; do
    list=$list,$below/$method
  done
  echo "${list#,}"
}
