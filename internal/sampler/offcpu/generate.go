package offcpu

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64 -go-package offcpu -type waiting -type reason kernel offcpu.bpf.c -- -mcpu=v3 -O2 -Wall -Werror -I../../bpf/include -I/usr/include/x86_64-linux-gnu
