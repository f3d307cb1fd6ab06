package cpu

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64 -go-package cpu -type timers -type timed_sample -type cost -type timer_weight kernel cpu.bpf.c -- -mcpu=v3 -O2 -Wall -Werror -I../../bpf/include -I/usr/include/x86_64-linux-gnu
