/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The weight of a sample: the period of the timer that it interrupts. User space
 * writes periods here as it draws them. */
#ifndef ATYS_TIMERS_H
#define ATYS_TIMERS_H

#include "rows.h"

/* A CPU's event, in a cache line of its own. */
struct cpu_timer {
	u64 period;	/* what a sample weighs now, ns or events */
	u64 first;	/* extra weight of the first sample of a block */
	u64 last_delta; /* reading of the second event at the last sample */
	u64 unused[5];
};

struct timers {
	u32 on_threads; /* events are on threads: each has a weight of its own */
	u32 unused;
	u64 pad[7];
	struct cpu_timer cpu[MAX_CPUS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timers);
} timer_state SEC(".maps");

/* Weights of the samples of one timer, ns. */
struct timer_weight {
	u64 period;
	u64 first; /* extra weight of the first sample of a block */
};

/* Weights by thread, for events on threads: each of their timers gets a new period
 * once it has run long enough. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct timer_weight);
} thread_weights SEC(".maps");

/* The weight of a sample of this CPU's event. The first interrupt of a block makes up
 * for the half period that is lost on average when a block restarts the timer. If it
 * finds the CPU idle, the extra weight belongs to idle time. */
static __always_inline u64 cpu_weight(struct cpu_timer *timer)
{
	u64 weight = timer->period + timer->first;
	timer->first = 0;
	return weight;
}

/* The weight of a sample of an event on the current thread. */
static __always_inline u64 thread_weight(u64 otherwise)
{
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct timer_weight *own = bpf_map_lookup_elem(&thread_weights, &tid);
	if (!own)
		return otherwise;
	u64 weight = own->period + own->first;
	own->first = 0;
	return weight;
}

#endif
