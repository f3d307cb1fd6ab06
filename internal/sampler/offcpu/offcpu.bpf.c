//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Samples why threads wait. One hook runs after a context switch, in the thread that
 * goes on: how long it waited is known, and its stack is still the one that waited.
 *
 *   a wait of d ns is kept with probability min(1, d/T), and weighs max(d, T)
 *   off = (now - last switch in) - CPU time gained; run queue = run_delay gained
 *
 * At the edge of a window, each wait that goes on is cut in two (cut_waits), so that
 * windows add up to the time that passed. */
#include "kernel.h"
#include <bpf/bpf_tracing.h>
#define WALKS_LANGUAGES
#include "aggregator.h"

char LICENSE[] SEC("license") = "GPL";

/* The sampler's half of a row's context. */
enum reason {
	REASON_NONE,
	REASON_BLOCKED,
	REASON_RUN_QUEUE,
};

const enum reason *reason_type __attribute__((unused)); /* for the generated Go */

/* What user space sets. */
struct waiting {
	u64 threshold; /* T, ns; below 2^31, so that products fit 64 bits */
	u64 kept;      /* waits so far, each with a walk */
	u64 mark;      /* what kept was when user space last adapted T */
	u64 quota;     /* walks that double T until then, each time that they are used up */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct waiting);
} waiting_state SEC(".maps");

/* A thread when it was switched in last, or at the last edge within a wait. */
struct absence {
	u64 since;		/* CLOCK_MONOTONIC ns; 0: not known */
	u64 runtime, run_delay; /* so far, then */
	u64 switches;		/* voluntary ones */
	u64 window;		/* in which this was written */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct absence);
} absences SEC(".maps");

/* Kernel stacks of waits at an edge. Apart from the scratch of samples, one of which
 * may run while the list of threads is read. */
struct edge_stack {
	u64 frames[MAX_KERNEL_FRAMES + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct edge_stack);
} edge_stacks SEC(".maps");

/* Fields that only this file looks at; the part of the name after ___ is for us alone. */
struct task_struct___offcpu {
	unsigned int __state;
	int on_cpu;
} __attribute__((preserve_access_index));

/* A wait shorter than T/65536 is kept like one of that length: this bounds weights. */
#define SHORTEST_SHIFT 16

/* A wait, and how it is weighed. */
struct wait {
	u64 d;	       /* ns */
	u64 threshold; /* T */
	u64 m;	       /* its probability is m/T; 0: it is certain */
};

#define MOST_DOUBLINGS 12
#define MOST_THRESHOLD (1ull << 31)

/* T for the wait that ends now. It depends on earlier waits only, so that estimates are
 * unbiased: a burst raises it before user space does. */
static __always_inline u64 threshold_now(struct waiting *waiting)
{
	u64 doublings = waiting->quota ? (waiting->kept - waiting->mark) / waiting->quota : 0;
	if (doublings > MOST_DOUBLINGS)
		doublings = MOST_DOUBLINGS;
	u64 t = (waiting->threshold & (MOST_THRESHOLD - 1)) << doublings;
	return t < MOST_THRESHOLD ? t : MOST_THRESHOLD - 1;
}

/* Decides whether a wait is kept. */
static __always_inline bool keep_wait(struct wait *w)
{
	if (w->d >= w->threshold) {
		w->m = 0;
		return w->d != 0;
	}
	w->m = w->d;
	if (w->m < (w->threshold >> SHORTEST_SHIFT) + 1)
		w->m = (w->threshold >> SHORTEST_SHIFT) + 1;
	return (u64)bpf_get_prandom_u32() * w->threshold < w->m << 32;
}

/* The row of a part of a kept wait. Both parts of a wait are kept or not together, so
 * that each has its share of the variance of the whole, d*d*(1-p)/p^2, kept in units of
 * 2^20. The number of waits, 1/p, is rounded at random to a whole one. */
static __always_inline struct row_value weigh(const struct wait *w, u64 part, u64 waits)
{
	struct row_value v = {.samples = 1, .values = {part, waits}};
	u64 t = w->threshold, m = w->m;
	if (!m)
		return v;
	v.values[0] = part * t / m;
	v.squares[0] = (v.values[0] * (w->d * (t - m) / m)) >> 20;
	if (waits) {
		v.values[1] = ((t << 16) / m + (bpf_get_prandom_u32() & 0xffff)) >> 16;
		v.squares[1] = t * (t - m) / m / m;
	}
	return v;
}

/* Adds a kept wait: what it was blocked, and what it was in the run queue. */
static __always_inline void add_wait(struct row_key *key, u32 buffer, const struct wait *w, u64 blocked, u64 queued)
{
	if (blocked) {
		struct row_value v = weigh(w, blocked, 1);
		key->reason = REASON_BLOCKED;
		add_to_row(buffer, key, &v);
	}
	if (queued) {
		struct row_value v = weigh(w, queued, 1);
		key->reason = REASON_RUN_QUEUE;
		add_to_row(buffer, key, &v);
	}
}

/* The wait that is being added, on each CPU. In memory rather than in registers, so
 * that the verifier walks the stack once, not once for each kind of wait. */
struct pending {
	struct wait wait;
	u64 queued;
	struct row_key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pending);
} pendings SEC(".maps");

/* Runs after the switch, in the thread that goes on. */
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(on_switched_in, bool is_switch)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_switch || task->flags & PF_KTHREAD)
		return 0;
	struct shared *shared = only(&shared_state);
	struct waiting *waiting = only(&waiting_state);
	struct scratch *s = only(&scratches);
	struct pending *p = only(&pendings);
	u32 cpu = 0, tgid = task->tgid;
	if (!shared || !waiting || !s || !p || !this_cpu(&cpu))
		return 0;
	struct cpu_samples *samples = &shared->cpu[cpu];
	/* the window is read once the sample has begun: Cut waits for those. All of the sample
	 * goes by its number */
	samples->entered += 1;
	u64 windows = READ_ONCE(shared->control.windows);
	u32 buffer = windows & 1;
	if (!keep_of(tgid, buffer))
		goto out;
	struct absence *a = bpf_task_storage_get(&absences, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!a)
		goto out;
	u64 now = bpf_ktime_get_ns(), runtime = task->se.sum_exec_runtime, delay = task->sched_info.run_delay;
	u64 since = __sync_lock_test_and_set(&a->since, now);
	u64 ran = runtime - a->runtime, queued = delay - a->run_delay;
	bool voluntary = task->nvcsw != a->switches;
	if (!since && task->start_time > shared->control.window_start) {
		since = task->start_time; /* it is new: older ones may have become targets just now */
		a->window = windows;
	}
	if (windows - a->window > 1)
		since = 0; /* it was no target meanwhile */
	else if (windows != a->window && since < shared->control.window_start)
		buffer = (buffer ^ 1) & 1; /* it ended while the edge of its window was drawn */
	a->runtime = runtime;
	a->run_delay = delay;
	a->switches = task->nvcsw;
	a->window = windows;
	struct wait w = {.threshold = threshold_now(waiting)};
	if (since && now - since > ran)
		w.d = now - since - ran;
	if (!since || !keep_wait(&w))
		goto out;
	if (s->busy) {
		count(LOST_NESTED, 1);
		count(LOST_NESTED_WEIGHT, w.m ? w.threshold : w.d);
		goto out;
	}
	s->busy = 1;
	__sync_fetch_and_add(&waiting->kept, 1);
	if (!voluntary || queued > w.d)
		queued = w.d;
	p->wait = w;
	p->queued = queued;
	p->key = row_of(shared, tgid, task->pid, now);
	bpf_probe_read_kernel(&s->user, sizeof(s->user), (void *)bpf_task_pt_regs(task));
	OPAQUE(buffer);
	buffer &= 1;
	p->key.kernel_stack = kernel_stack(ctx, s, buffer);
	p->key.user_stack = user_stack(s, &s->user, p->key.tgid, buffer);
	w = p->wait;
	queued = p->queued;
	struct row_key key = p->key;
	add_wait(&key, buffer, &w, w.d - queued, queued);
	s->busy = 0;
out:
	samples->left += 1;
	return 0;
}

/* Cuts the waits that go on at the edge of a window, right after the buffers were
 * swapped: what was waited so far goes to the window that has ended, with the kernel's
 * part of the stack. User memory of another thread cannot be read here. */
SEC("iter/task")
int cut_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct shared *shared = only(&shared_state);
	struct waiting *waiting = only(&waiting_state);
	struct edge_stack *stack = only(&edge_stacks);
	if (!task || !shared || !waiting || !stack || task->flags & PF_KTHREAD)
		return 0;
	u64 windows = READ_ONCE(shared->control.windows);
	u32 tgid = task->tgid, buffer = windows & 1;
	if (!keep_of(tgid, buffer))
		return 0;
	struct absence *a = bpf_task_storage_get(&absences, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!a)
		return 0;
	u64 now = bpf_ktime_get_ns(), since = a->since;
	bool known = since && windows - a->window <= 1;
	struct task_struct___offcpu *state = (void *)task;
	if (known && (state->on_cpu || state->__state == 0 || task->exit_state)) {
		a->window = windows; /* it runs, or soon will */
		return 0;
	}
	struct wait w = {.threshold = threshold_now(waiting)};
	u64 ran = task->se.sum_exec_runtime - a->runtime;
	a->runtime = task->se.sum_exec_runtime;
	if (!known) {
		a->run_delay = task->sched_info.run_delay;
		/* one that waits has counted this switch already; its wait is no preemption */
		a->switches = state->__state && task->nvcsw ? task->nvcsw - 1 : task->nvcsw;
	}
	a->window = windows;
	if (__sync_val_compare_and_swap(&a->since, since, now) != since || !known || now - since <= ran)
		return 0; /* it was switched in meanwhile, or nothing is known of it */
	w.d = now - since - ran;
	if (!keep_wait(&w))
		return 0;
	buffer = (buffer ^ 1) & 1;
	struct row_key key = row_of(shared, tgid, task->pid, now);
	key.slot = 0; /* of the other window */
	key.user_stack = task->mm ? STACK_LOST : 0;
	key.kernel_stack = store_kernel_stack(buffer, stack->frames,
		bpf_get_task_stack(task, stack->frames, MAX_KERNEL_FRAMES * 8, 0));
	key.reason = REASON_BLOCKED;
	struct row_value v = weigh(&w, w.d, 0);
	add_to_row(buffer, &key, &v);
	return 0;
}
