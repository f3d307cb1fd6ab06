// Command cgovictim calls C, which calls Go, which calls C.
package main

/*
#include <stdlib.h>
typedef long (*fn)(long);
extern long goWork(long);
static int compare(const void *a, const void *b) { return *(const long *)a < *(const long *)b ? -1 : 1; }
static __attribute__((noinline)) long burn(long n) {
	long v[64], s = 0;
	for (long k = 0; k < n; k++) {
		for (int i = 0; i < 64; i++) v[i] = (i * 7919 + k) % 64;
		qsort(v, 64, sizeof v[0], compare);
		s += v[k % 64];
	}
	return s;
}
static __attribute__((noinline)) long viaGo(long n) { return goWork(n) + burn(2); }
*/
import "C"

import "runtime"

var sink any

//export goWork
func goWork(n C.long) C.long {
	b := make([]byte, 1000)
	sink = b
	if n > 0 {
		return C.viaGo(n-1) + C.burn(3)
	}
	return C.burn(5)
}

func main() {
	for range 2 {
		go func() {
			for {
				C.viaGo(3)
				runtime.Gosched()
			}
		}()
	}
	for {
		C.burn(10)
	}
}
