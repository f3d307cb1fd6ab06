/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Which processes are sampled. The map is the tracker's (sampler/table), which
 * follows forks and exits once for all samplers of the machine; it is lent to each
 * of them. */
#ifndef ATYS_TARGETS_H
#define ATYS_TARGETS_H

#include "kernel.h"

/* Samplers that can run at once. Each has a table of rows, and a bit of masks. */
#define MAX_TABLES 32

/* A sampled process. */
struct target {
	u32 tables; /* that sample it, a bit each */
	/* How many of its samples are kept, by table and buffer, so that a rate set for the
	 * next window holds from its edge: a probability in 1/2^32. 0: none. */
	u32 keep[MAX_TABLES][2];
};

#define KEEP_ALL 0xffffffffu

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct target);
} targets SEC(".maps");

#endif
