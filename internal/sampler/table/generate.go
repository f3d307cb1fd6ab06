package table

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64 -go-package table -type shared -type tracking -type target -type row_key -type row_value -type exited -type thread_times -type counter -type arena kernel track.bpf.c -- -mcpu=v3 -O2 -Wall -Werror -I../../bpf/include -I/usr/include/x86_64-linux-gnu
