//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Samples where threads are: on each event, find the target, walk the stacks,
 * add the sample's weight to a row. Rows and stacks are kept in one of two
 * buffers; user space flips them at a window's edge and reads the other. */
#include "kernel.h"
#include <bpf/bpf_tracing.h>
#define WALKS_LANGUAGES
#include "walk_current.h"
#include "control.h"

char LICENSE[] SEC("license") = "GPL";

#define ARENA_WORDS (1u << 19) /* 4 MB of stacks in each buffer */
#define MAX_KERNEL_FRAMES 127

/* Load-time choices of the loader. */
const volatile u32 only_targets = 0;   /* sample only what the targets map names */
const volatile u32 count_events = 0;   /* the weight is the event's own period, not ours */
const volatile u32 square_shift = 10;  /* squared weights are kept in units of 2^shift */
const volatile u32 with_threads = 1;   /* rows know their thread */
const volatile u32 with_delta = 0;     /* read the second event at each sample */
const volatile u32 with_times = 0;     /* stream each sample beside its row */
const volatile u32 with_costs = 0;     /* measure time spent in here */
const volatile u32 without_walk = 0;   /* benchmarks: take the interrupt, do nothing */
const volatile u32 pass_through = 0;   /* tests: let the kernel write its own record too */
const volatile u32 keep_one_in = 1;    /* events that are counted: thinned at random */
const volatile u64 slot_ns = 0;	       /* length of a slot; 0: rows have none */
const volatile u32 user_only = 0;      /* :u of an event */
const volatile u32 kernel_only = 0;    /* :k of an event */

/* A sampled process and how many of its samples are kept, per buffer: a rate
 * set for the next window holds from its edge. */
struct target {
	u32 id;
	u32 unused;
	u64 keep[2]; /* probability in 1/2^32; 2^32: all */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct target);
} targets SEC(".maps");

/* In place of a stack's hash: there was a stack, and it found no room. */
#define STACK_LOST 1

/* What rows are told apart by. slot and context are 0 where unused. */
struct row_key {
	u64 user_stack, kernel_stack; /* hashes; 0: none */
	u32 tgid, tid;
	u32 slot, context;
};

struct row_value {
	u64 samples;
	u64 weight;
	u64 squares;
	u64 delta;
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

/* Per CPU: what would take too much of the 512 bytes of stack that 6.1 leaves
 * a program and all that it calls. */
struct scratch {
	u32 busy;
	u32 unused;
	struct pt_regs user; /* what user code has in its registers */
	struct walk walk;
	u64 kernel[MAX_KERNEL_FRAMES + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* Everything that is not in a row is counted here. */
enum counter {
	LOST_ROWS,	    /* the rows map was full */
	LOST_ROWS_WEIGHT,
	LOST_NESTED,	    /* a sample inside a sample */
	LOST_NESTED_WEIGHT,
	LOST_TIMES,	    /* the stream of timed samples was full */
	LOST_EXITS,	    /* an exited thread's times found no room */
	LOST_TARGETS,	    /* a target's child found no room */
	COUNTERS,
};

const enum counter *counter_type __attribute__((unused)); /* for the generated Go */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

/* Time spent in a sample, in steps of 64 ns; and frames walked, to tell the cost of one. */
#define COST_STEPS 1024
struct cost {
	u64 steps[COST_STEPS];
	u64 samples, frames, ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cost);
} costs SEC(".maps");

/* One sample with its time, under --timed. */
struct timed_sample {
	u64 time;
	u64 user_stack, kernel_stack;
	u64 weight, delta;
	u32 tgid, tid;
	u32 cpu, buffer;
};

const struct timed_sample *timed_sample_type __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} times SEC(".maps");

/* The second event of -e A+B, one counter a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, u32);
} delta_events SEC(".maps");

/* What a thread used that exits: told when exit begins, and again when the
 * kernel forgets it. In between it still runs, to give its memory back. */
struct exited {
	u32 tgid, tid;
	u32 settled; /* the last word on it */
	u32 unused;
	u64 runtime, utime, stime;
	u64 started; /* CLOCK_BOOTTIME ns */
	char comm[16];
	char process[16];
};

const struct exited *exited_type __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} exits SEC(".maps");

static __always_inline void count(u32 counter, u64 n)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);
	if (value)
		*value += n;
}

/* Copies a stack into the arena unless the buffer has it. */
static __always_inline bool store_stack(u32 buffer, u64 hash, const u64 *frames, u32 n, u32 end)
{
	void *index = buffer ? (void *)&stacks_1 : (void *)&stacks_0;
	if (bpf_map_lookup_elem(index, &hash))
		return true;
	struct arena *arena = buffer ? only(&arena_1) : only(&arena_0);
	if (!arena || arena->next > ARENA_WORDS)
		return false;
	u64 at = __sync_fetch_and_add(&arena->next, n + 1);
	if (at + n + 1 > ARENA_WORDS)
		return false;
	arena->words[at & (ARENA_WORDS - 1)] = (u64)end << 32 | n;
	for (u32 i = 0; i < MAX_FRAMES; i++) {
		if (i >= n)
			break;
		u64 word = at + 1 + i;
		OPAQUE(word);
		arena->words[word & (ARENA_WORDS - 1)] = frames[i];
	}
	u32 offset = at;
	bpf_map_update_elem(index, &hash, &offset, BPF_NOEXIST);
	/* a failed update is another CPU's same stack, or a full index: */
	return bpf_map_lookup_elem(index, &hash) != 0;
}

/* The kernel's part of the stack; 0 where the sample hit user code. */
static __always_inline u64 kernel_stack(void *ctx, struct scratch *s, u32 buffer)
{
	long bytes = bpf_get_stack(ctx, s->kernel, MAX_KERNEL_FRAMES * 8, 0);
	if (bytes <= 0)
		return 0;
	u32 n = (u64)bytes >> 3;
	u64 hash = 0x6b65726e;
	for (u32 i = 0; i < MAX_KERNEL_FRAMES; i++) {
		if (i >= n)
			break;
		hash = mix(hash, s->kernel[i]);
	}
	return store_stack(buffer, hash, s->kernel, n, END_COMPLETE) ? hash : STACK_LOST;
}

/* The user's part of the stack. */
static __always_inline u64 user_stack(struct scratch *s, const struct pt_regs *regs, u32 tgid, u32 buffer)
{
	struct walk *w = &s->walk;
	struct task_struct *task = bpf_get_current_task_btf();
	w->count = 0;
	w->end = END_NO_USER;
	if (task->flags & PF_KTHREAD || !task->mm)
		return 0; /* a kernel thread, or one that exit has taken the memory from */
	start_walk(w, regs);
	if (regs->cs != USER_CS)
		w->end = END_UNSUPPORTED; /* 32-bit code */
	else if (!walk_current(w, regs, tgid))
		return 0;
	w->hash = mix(w->hash, w->end);
	return store_stack(buffer, w->hash, w->frames, w->count, w->end) ? w->hash : STACK_LOST;
}

static __always_inline bool add_to_row(u32 buffer, const struct row_key *key, u64 weight, u64 delta)
{
	void *rows = buffer ? (void *)&rows_1 : (void *)&rows_0;
	u64 scaled = weight >> square_shift;
	struct row_value *row = bpf_map_lookup_elem(rows, key);
	if (!row) {
		struct row_value first = {1, weight, scaled * scaled, delta};
		if (!bpf_map_update_elem(rows, key, &first, BPF_NOEXIST)) {
			struct arena *arena = buffer ? only(&arena_1) : only(&arena_0);
			if (arena)
				__sync_fetch_and_add(&arena->rows, 1);
			return true;
		}
		row = bpf_map_lookup_elem(rows, key); /* another CPU was first, or it is full */
		if (!row)
			return false;
	}
	__sync_fetch_and_add(&row->samples, 1);
	__sync_fetch_and_add(&row->weight, weight);
	__sync_fetch_and_add(&row->squares, scaled * scaled);
	__sync_fetch_and_add(&row->delta, delta);
	return true;
}

/* How much of the second event this CPU saw since its last sample. */
static __always_inline u64 read_delta(struct cpu_state *cpu)
{
	struct bpf_perf_event_value reading = {};
	if (bpf_perf_event_read_value(&delta_events, BPF_F_CURRENT_CPU, &reading, sizeof(reading)))
		return 0;
	u64 delta = reading.counter - cpu->last_delta;
	cpu->last_delta = reading.counter;
	return delta;
}

static __always_inline void stream(const struct row_key *key, u32 cpu, u32 buffer, u64 time, u64 weight, u64 delta)
{
	struct timed_sample sample = {
		.time = time,
		.user_stack = key->user_stack,
		.kernel_stack = key->kernel_stack,
		.weight = weight,
		.delta = delta,
		.tgid = key->tgid,
		.tid = key->tid,
		.cpu = cpu,
		.buffer = buffer,
	};
	if (bpf_ringbuf_output(&times, &sample, sizeof(sample), BPF_RB_NO_WAKEUP))
		count(LOST_TIMES, 1);
}

/* What a kept sample of a thinned stream stands for, of a value that each event
 * had: in the proportion in which its weight was raised. */
static __always_inline u64 scale(u64 value, u64 weight, u64 period)
{
	if (weight == period || !period)
		return value;
	return (value * ((weight << 10) / period)) >> 10;
}

/* The weight of a sample of this process: 0 where it is not to be kept. */
static __always_inline u64 weigh(u32 tgid, u32 buffer, u64 period)
{
	if (keep_one_in > 1) {
		if (bpf_get_prandom_u32() % keep_one_in)
			return 0;
		period *= keep_one_in;
	}
	if (!only_targets)
		return period;
	struct target *t = bpf_map_lookup_elem(&targets, &tgid);
	if (!t)
		return 0;
	u64 keep = t->keep[buffer & 1];
	if (keep >> 32)
		return period;
	if (keep == 0 || bpf_get_prandom_u32() >= keep)
		return 0;
	return (period << 32) / keep; /* thinned: each stands for the ones not kept */
}

/* One sample, with the registers that user code had. */
static __always_inline void take(void *ctx, struct scratch *s, u32 cpu_id, u32 buffer,
				 const struct pt_regs *user, bool in_kernel, u64 weight, u64 delta, u64 now)
{
	u64 id = bpf_get_current_pid_tgid();
	struct row_key key = {.tgid = id >> 32};
	if (with_threads)
		key.tid = (u32)id;
	if (in_kernel)
		key.kernel_stack = kernel_stack(ctx, s, buffer);
	key.user_stack = user_stack(s, user, key.tgid, buffer);
	if (slot_ns) {
		struct shared *shared = only(&shared_state);
		if (shared)
			key.slot = 1 + (now - shared->control.window_start) / slot_ns;
	}
	if (!add_to_row(buffer, &key, weight, delta)) {
		count(LOST_ROWS, 1);
		count(LOST_ROWS_WEIGHT, weight);
	}
	if (with_times)
		stream(&key, cpu_id, buffer, now, weight, delta);
}

static __always_inline void measure(u64 began, u32 frames)
{
	struct cost *cost = only(&costs);
	if (!cost)
		return;
	u64 ns = bpf_ktime_get_ns() - began;
	u32 at = ns >> 6;
	if (at >= COST_STEPS)
		at = COST_STEPS - 1;
	cost->steps[at] += 1;
	cost->samples += 1;
	cost->frames += frames;
	cost->ns += ns;
}

/* What every kind of event does. A tracepoint has no event that tells where the
 * CPU was: it is in the kernel by nature. */
static __always_inline int sample(void *ctx, struct bpf_perf_event_data *event, u64 event_period)
{
	u64 began = with_costs || with_times || slot_ns ? bpf_ktime_get_ns() : 0;
	u32 cpu_id = bpf_get_smp_processor_id();
	struct shared *shared = only(&shared_state);
	struct scratch *s = only(&scratches);
	if (!shared || !s || cpu_id >= MAX_CPUS)
		return 0;
	OPAQUE(cpu_id); /* 6.1 forgets the bound above at the next helper call */
	cpu_id &= MAX_CPUS - 1;
	struct cpu_state *cpu = &shared->cpu[cpu_id];
	u64 period = event_period;
	if (!count_events)
		period = shared->control.on_threads ? thread_weight(shared->cpu[0].period) : cpu_weight(cpu);
	/* read at each interrupt, kept or not: a sample answers for the time since
	 * the interrupt before it, not since the last one that was kept */
	u64 delta = with_delta ? read_delta(cpu) : 0;
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	if (tgid == 0)
		return 0; /* idle: /proc/stat knows for how long */
	if (s->busy) {
		count(LOST_NESTED, 1);
		count(LOST_NESTED_WEIGHT, period);
		return 0;
	}
	s->busy = 1;
	cpu->entered += 1;
	u32 buffer = *(volatile u32 *)&shared->control.active & 1;
	u64 weight = weigh(tgid, buffer, period);
	bool in_kernel = !event || (event->regs.cs & 3) == 0;
	bool wanted = !(user_only && in_kernel) && !(kernel_only && !in_kernel);
	if (weight && wanted && !without_walk) {
		if (in_kernel) /* what user code had when it entered the kernel */
			bpf_probe_read_kernel(&s->user, sizeof(s->user),
					      (void *)bpf_task_pt_regs(bpf_get_current_task_btf()));
		else
			__builtin_memcpy(&s->user, &event->regs, sizeof(s->user));
		take(ctx, s, cpu_id, buffer, &s->user, in_kernel, weight, scale(delta, weight, period), began);
		if (with_costs)
			measure(began, s->walk.count);
	}
	cpu->left += 1;
	s->busy = 0;
	return pass_through;
}

/* Clocks and counters. Only the context's own fields may be read directly. */
SEC("perf_event")
int on_event(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, ctx, ctx->sample_period);
}

/* Tracepoints run in the kernel by nature; where in it says the stack. */
SEC("tracepoint")
int on_tracepoint(void *ctx)
{
	return sample(ctx, 0, 1);
}

/* All threads with their exact times, read at a window's edge. */
struct thread_times {
	u32 tgid, tid;
	u64 runtime, utime, stime;
	u64 switches;
	u64 started; /* CLOCK_BOOTTIME ns */
	u64 target;  /* its process is sampled: user space may not have heard of it yet */
	char comm[16];
	char process[16];
};

const struct thread_times *thread_times_type __attribute__((unused));

SEC("iter/task")
int list_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	if (!task)
		return 0;
	u32 tgid = task->tgid;
	struct thread_times t = {
		.tgid = tgid,
		.tid = task->pid,
		.runtime = task->se.sum_exec_runtime,
		.utime = task->utime,
		.stime = task->stime,
		.switches = task->nvcsw + task->nivcsw,
		.started = task->start_boottime,
		.target = only_targets && bpf_map_lookup_elem(&targets, &tgid) != 0,
	};
	bpf_probe_read_kernel(t.comm, sizeof(t.comm), task->comm);
	bpf_probe_read_kernel(t.process, sizeof(t.process), task->group_leader->comm);
	bpf_seq_write(ctx->meta->seq, &t, sizeof(t));
	return 0;
}

/* Children of a target are targets from their first instruction. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	struct target *t = bpf_map_lookup_elem(&targets, &from);
	if (!t)
		return 0;
	tell_birth();
	if (from == to)
		return 0;
	struct target copy = *t;
	if (bpf_map_update_elem(&targets, &to, &copy, BPF_ANY))
		count(LOST_TARGETS, 1);
	return 0;
}

/* Tells user space what a thread used. */
static __always_inline void report_exit(struct task_struct *task, u32 settled)
{
	struct exited *e = bpf_ringbuf_reserve(&exits, sizeof(*e), 0);
	if (!e) {
		count(LOST_EXITS, 1);
		return;
	}
	e->tgid = task->tgid;
	e->tid = task->pid;
	e->settled = settled;
	e->unused = 0;
	e->runtime = task->se.sum_exec_runtime;
	e->utime = task->utime;
	e->stime = task->stime;
	e->started = task->start_boottime;
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), task->comm);
	e->process[0] = 0;
	if (!settled) /* later its leader may be gone */
		bpf_probe_read_kernel(e->process, sizeof(e->process), task->group_leader->comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	u32 tgid = task->tgid;
	if (!only_targets || bpf_map_lookup_elem(&targets, &tgid))
		report_exit(task, 0);
	return 0; /* its process stays a target: its other threads may still be exiting */
}

/* The kernel forgets a thread: nothing of it runs any more. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *task)
{
	u32 tgid = task->tgid;
	if (only_targets && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	report_exit(task, 1);
	return 0;
}
