/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What user space and the programs tell each other without a system call: which
 * buffer is filled, what a sample of each event weighs, and that targets start
 * threads. */
#ifndef ATYS_CONTROL_H
#define ATYS_CONTROL_H

#define MAX_CPUS 512

/* What user space sets and reads without a system call. */
struct control {
	u32 active;	  /* the buffer being filled: 0 or 1 */
	u32 on_threads;	  /* events are on threads: each has a weight of its own */
	u64 window_start; /* bpf_ktime_get_ns at the last flip */
	u64 births;	  /* threads and children that targets have started */
	u32 alert;	  /* the next birth is to be told, and clears this */
	u32 unused;
};

struct cpu_state {
	u64 period;	/* what a sample of this CPU's event weighs now, ns or events */
	u64 first;	/* extra weight of the first sample of a block */
	u64 entered;	/* programs begun; entered == left when none runs */
	u64 left;
	u64 last_delta; /* reading of the second event at the last sample */
	u64 unused[3];
};

struct shared {
	struct control control;
	u64 pad[4];
	struct cpu_state cpu[MAX_CPUS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct shared);
} shared_state SEC(".maps");

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

/* Wakes user space at a birth that it waits for: apart from all that follows
 * processes in batches, and what a timer of a thread that is not there yet misses
 * in between. A record is the time of the birth. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} births SEC(".maps");

/* The weight of a sample of this CPU's event. The first interrupt of a block makes up
 * for the half period that is lost on average when a block restarts the timer. If it
 * finds the CPU idle, the extra weight belongs to idle time. */
static __always_inline u64 cpu_weight(struct cpu_state *cpu)
{
	u64 weight = cpu->period + cpu->first;
	cpu->first = 0;
	return weight;
}

/* What a sample of an event on the current thread weighs. */
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

/* Counts a birth, and wakes whoever waits for one. */
static __always_inline void tell_birth(void)
{
	struct shared *shared = only(&shared_state);
	if (!shared)
		return;
	__sync_fetch_and_add(&shared->control.births, 1);
	if (!*(volatile u32 *)&shared->control.alert)
		return;
	u64 now = bpf_ktime_get_ns();
	if (!bpf_ringbuf_output(&births, &now, sizeof(now), BPF_RB_FORCE_WAKEUP))
		*(volatile u32 *)&shared->control.alert = 0;
}

#endif
