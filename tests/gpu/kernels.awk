# What ptxas -v said, as one line per kernel and architecture, separated by tabs:
#   mangled name, architecture, registers, bytes of stack, bytes spilled (stores and loads), bytes of static shared memory
/Compiling entry function/ { split($0, quoted, "'"); kernel = quoted[2]; arch = quoted[4] }
/bytes stack frame/ { stack = $1; spilled = $5 + $9 }
/Used [0-9]+ registers/ {
    shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
    for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
    print kernel "\t" arch "\t" registers "\t" stack "\t" spilled "\t" shared
}
