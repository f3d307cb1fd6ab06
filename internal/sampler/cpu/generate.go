package cpu

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64 -go-package cpu -type shared -type target -type row_key -type row_value -type timed_sample -type exited -type thread_times -type cost -type counter -type arena -type timer_weight kernel cpu.bpf.c -- -mcpu=v3 -O2 -Wall -Werror -I../../bpf/include -I/usr/include/x86_64-linux-gnu
