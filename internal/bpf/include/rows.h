/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The tables that a sampler fills and sampler/table drains: rows and stacks in two
 * buffers, what user space and programs share, and counters of what was lost. */
#ifndef ATYS_ROWS_H
#define ATYS_ROWS_H

#include "kernel.h"

#define MAX_CPUS 512
#define ARENA_WORDS (1u << 19) /* 4 MB of stacks in each buffer */
#define VALUES 2 /* value types that a row has room for */

/* Instead of a stack's hash: there was a stack, and no room for it. */
#define STACK_LOST 1

/* What tells rows apart. slot, reason and carried are 0 where unused. */
struct row_key {
	u64 user_stack, kernel_stack; /* hashes; 0: none */
	u32 tgid, tid;
	u32 slot;
	u16 reason;  /* the sampler's half of the context */
	u16 carried; /* the thread's half */
};

struct row_value {
	u64 samples;
	u64 values[VALUES];
	u64 squares[VALUES]; /* variances of the values, in units that the sampler chooses */
};

struct rows_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct row_key);
	__type(value, struct row_value);
} rows_0 SEC(".maps"), rows_1 SEC(".maps");

/* Where in the arena a stack is, by its hash. */
struct stacks_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, u64);
	__type(value, u32);
} stacks_0 SEC(".maps"), stacks_1 SEC(".maps");

/* Stacks, one after another: a word {end << 32 | frames}, then the frames. */
struct arena {
	u64 next; /* first free word; may run past the end, which is a loss */
	u64 rows; /* of the same buffer that are in use */
	u64 words[ARENA_WORDS];
};

struct arena_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct arena);
} arena_0 SEC(".maps"), arena_1 SEC(".maps");

/* What user space and programs share without system calls. */
struct control {
	u64 window_start; /* bpf_ktime_get_ns at the last swap */
	u64 windows;	  /* swaps so far; the buffer being filled is that of its lowest bit */
};

/* A CPU's samples, in a cache line of its own. */
struct cpu_samples {
	u64 entered; /* samples begun; entered == left when none runs */
	u64 left;
	u64 unused[6];
};

struct shared {
	struct control control;
	u64 pad[6];
	struct cpu_samples cpu[MAX_CPUS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct shared);
} shared_state SEC(".maps");

/* Counts what is not in a row. */
enum counter {
	LOST_ROWS,	    /* the rows map was full */
	LOST_ROWS_WEIGHT,
	LOST_NESTED,	    /* a sample inside a sample */
	LOST_NESTED_WEIGHT,
	LOST_TIMES,	    /* the stream of timed samples was full: sampler/cpu */
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

#endif
