package unwind

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64 -go-package unwind -type mapping -type process -type executable -type request -type file_key -type walk_end -type photograph -type python_process -type beam_process -type dotnet_process -type hotspot_process -type php_process -type ruby_process -type perl_process -type v8_process kernel unwind.bpf.c -- -mcpu=v3 -O2 -Wall -Werror -I../bpf/include -I/usr/include/x86_64-linux-gnu
