//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Samples where threads are: on each event, weighs the sample, walks the stacks, and
 * adds it to a row. */
#include "kernel.h"
#include <bpf/bpf_tracing.h>
#define WALKS_LANGUAGES
#include "aggregator.h"
#include "timers.h"

char LICENSE[] SEC("license") = "GPL";

/* Load-time constants of the loader. */
const volatile u32 count_events = 0;   /* the weight is the event's own period, not ours */
const volatile u32 square_shift = 10;  /* squared weights are kept in units of 2^(2*shift) */
const volatile u32 with_delta = 0;     /* read the second event at each sample */
const volatile u32 with_times = 0;     /* stream each sample beside its row */
const volatile u32 with_costs = 0;     /* measure time spent in here */
const volatile u32 without_walk = 0;   /* benchmarks: take the interrupt, do nothing */
const volatile u32 pass_through = 0;   /* tests: let the kernel write its own record too */
const volatile u32 keep_one_in = 1;    /* events that are counted: thinned at random */
const volatile u32 user_only = 0;      /* :u of an event */
const volatile u32 kernel_only = 0;    /* :k of an event */

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

/* How much of the second event this CPU saw since its last sample. */
static __always_inline u64 read_delta(struct cpu_timer *timer)
{
	struct bpf_perf_event_value reading = {};
	if (bpf_perf_event_read_value(&delta_events, BPF_F_CURRENT_CPU, &reading, sizeof(reading)))
		return 0;
	u64 delta = reading.counter - timer->last_delta;
	timer->last_delta = reading.counter;
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

/* The weight of a sample of this process: 0 where it is not kept. */
static __always_inline u64 weigh(u32 tgid, u32 buffer, u64 period)
{
	if (keep_one_in > 1) {
		if (bpf_get_prandom_u32() % keep_one_in)
			return 0;
		period *= keep_one_in;
	}
	return thin(period, keep_of(tgid, buffer));
}

/* Adds one sample, with the registers that user code had. */
static __always_inline void add(void *ctx, struct scratch *s, struct shared *shared, u32 cpu, u32 buffer,
				const struct pt_regs *user, bool in_kernel, u64 weight, u64 delta, u64 now)
{
	u64 id = bpf_get_current_pid_tgid();
	struct row_key key = row_of(shared, id >> 32, (u32)id, now);
	if (in_kernel)
		key.kernel_stack = kernel_stack(ctx, s, buffer);
	key.user_stack = user_stack(s, user, key.tgid, buffer);
	u64 scaled = weight >> square_shift;
	s->value = (struct row_value){1, {weight, delta}, {scaled * scaled}};
	add_to_row(buffer, &key, &s->value);
	if (with_times)
		stream(&key, cpu, buffer, now, weight, delta);
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

/* What every kind of event does. A tracepoint has no event with the registers of the
 * CPU: it is in the kernel by nature. */
static __always_inline int sample(void *ctx, struct bpf_perf_event_data *event, u64 event_period)
{
	u64 began = with_costs || with_times || slot_ns ? bpf_ktime_get_ns() : 0;
	u32 cpu = 0;
	struct shared *shared = only(&shared_state);
	struct timers *timers = only(&timer_state);
	struct scratch *s = only(&scratches);
	if (!shared || !timers || !s || !this_cpu(&cpu))
		return 0;
	u64 period = event_period;
	if (!count_events)
		period = timers->on_threads ? thread_weight(timers->cpu[0].period) : cpu_weight(&timers->cpu[cpu]);
	/* read at each interrupt, kept or not: a sample answers for the time since
	 * the interrupt before it, not since the last one that was kept */
	u64 delta = with_delta ? read_delta(&timers->cpu[cpu]) : 0;
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	if (tgid == 0)
		return 0; /* idle: /proc/stat knows for how long */
	if (!begin_sample(s, &shared->cpu[cpu], period))
		return 0;
	u32 buffer = active_buffer(shared);
	u64 weight = weigh(tgid, buffer, period);
	bool in_kernel = !event || (event->regs.cs & 3) == 0;
	bool wanted = !(user_only && in_kernel) && !(kernel_only && !in_kernel);
	if (weight && wanted && !without_walk) {
		if (in_kernel) /* what user code had when it entered the kernel */
			bpf_probe_read_kernel(&s->user, sizeof(s->user),
					      (void *)bpf_task_pt_regs(bpf_get_current_task_btf()));
		else
			__builtin_memcpy(&s->user, &event->regs, sizeof(s->user));
		add(ctx, s, shared, cpu, buffer, &s->user, in_kernel, weight, scale(delta, weight, period), began);
		if (with_costs)
			measure(began, s->walk.count);
	}
	end_sample(s, &shared->cpu[cpu]);
	return pass_through;
}

/* Clocks and counters. Only the context's own fields may be read directly. */
SEC("perf_event")
int on_event(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, ctx, ctx->sample_period);
}

/* Tracepoints run in the kernel by nature; the stack shows where. */
SEC("tracepoint")
int on_tracepoint(void *ctx)
{
	return sample(ctx, 0, 1);
}
