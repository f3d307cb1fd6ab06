/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What all BPF samplers share: they weigh a sample, walk its stacks, and add it to a
 * row. Rows and stacks are kept in one of two buffers; user space (sampler/table)
 * swaps them at the edge of a window and drains the other.
 *
 *   begin_sample -> kernel_stack, user_stack -> add_to_row -> end_sample */
#ifndef ATYS_AGGREGATOR_H
#define ATYS_AGGREGATOR_H

#include "kernel.h"
#include "rows.h"
#include "targets.h"
#include "walk_current.h"

#define MAX_KERNEL_FRAMES 127

/* Load-time constants that sampler/table sets. */
const volatile u32 only_targets = 0;  /* sample only processes in the targets map */
const volatile u32 table_number = 0;  /* of this sampler's table, below MAX_TABLES */
const volatile u32 with_threads = 1;  /* rows know their thread */
const volatile u32 with_carried = 0;  /* look up what threads carry */
const volatile u64 slot_ns = 0;	      /* length of a slot; 0: rows have none */

/* What threads carry, such as the endpoint of a request, by thread id. Nothing fills it yet:
 * whatever reads it of programs will lend its own map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u16);
} thread_contexts SEC(".maps");

/* Per CPU: what would take too much of the 512 bytes of stack that 6.1 leaves
 * a program and all that it calls. Each sampler has its own, because a timer may
 * interrupt the sample of another sampler. */
struct scratch {
	u32 busy;
	u32 unused;
	struct pt_regs user; /* the registers of user code */
	struct row_value value;
	struct walk walk;
	u64 kernel[MAX_KERNEL_FRAMES + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline void count(u32 counter, u64 n)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);
	if (value)
		*value += n;
}

/* This CPU's number; false where it is out of bounds. */
static __always_inline bool this_cpu(u32 *number)
{
	u32 cpu = bpf_get_smp_processor_id();
	if (cpu >= MAX_CPUS)
		return false;
	OPAQUE(cpu); /* 6.1 forgets the bound above at the next helper call */
	*number = cpu & (MAX_CPUS - 1);
	return true;
}

/* The buffer being filled, which the number of the window says: nothing else can disagree
 * with it. */
static __always_inline u32 active_buffer(struct shared *shared)
{
	return READ_ONCE(shared->control.windows) & 1;
}

/* Begins a sample, which end_sample ends: user space waits for it before it drains a
 * buffer. False where this one interrupts another, which is counted with its weight. */
static __always_inline bool begin_sample(struct scratch *s, struct cpu_samples *cpu, u64 weight)
{
	if (s->busy) {
		count(LOST_NESTED, 1);
		count(LOST_NESTED_WEIGHT, weight);
		return false;
	}
	s->busy = 1;
	cpu->entered += 1;
	return true;
}

static __always_inline void end_sample(struct scratch *s, struct cpu_samples *cpu)
{
	cpu->left += 1;
	s->busy = 0;
}

#define KEEP_EACH (1ull << 32)

/* With which probability, in 1/2^32, samples of a process are kept. */
static __always_inline u64 keep_of(u32 tgid, u32 buffer)
{
	if (!only_targets)
		return KEEP_EACH;
	struct target *t = bpf_map_lookup_elem(&targets, &tgid);
	if (!t)
		return 0;
	u32 keep = t->keep[table_number & (MAX_TABLES - 1)][buffer & 1];
	return keep == KEEP_ALL ? KEEP_EACH : keep;
}

/* The weight of a sample that is kept with the given probability: 0 if it is not kept. */
static __always_inline u64 thin(u64 weight, u64 keep)
{
	if (keep >> 32)
		return weight;
	if (keep == 0 || bpf_get_prandom_u32() >= keep)
		return 0;
	return (weight << 32) / keep; /* it stands for those that are not kept, too */
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

/* Stores kernel frames, of the given size in bytes. Gives their hash, 0 where there
 * are none. */
static __always_inline u64 store_kernel_stack(u32 buffer, const u64 *frames, long bytes)
{
	if (bytes <= 0)
		return 0;
	u32 n = (u64)bytes >> 3;
	u64 hash = 0x6b65726e;
	for (u32 i = 0; i < MAX_KERNEL_FRAMES; i++) {
		if (i >= n)
			break;
		hash = mix(hash, frames[i]);
	}
	return store_stack(buffer, hash, frames, n, END_COMPLETE) ? hash : STACK_LOST;
}

/* The kernel's part of the current stack. */
static __always_inline u64 kernel_stack(void *ctx, struct scratch *s, u32 buffer)
{
	return store_kernel_stack(buffer, s->kernel, bpf_get_stack(ctx, s->kernel, MAX_KERNEL_FRAMES * 8, 0));
}

/* The user's part of the current stack. */
static __always_inline u64 user_stack(struct scratch *s, const struct pt_regs *regs, u32 tgid, u32 buffer)
{
	struct walk *w = &s->walk;
	struct task_struct *task = bpf_get_current_task_btf();
	w->count = 0;
	w->end = END_NO_USER;
	if (task->flags & PF_KTHREAD || !task->mm)
		return 0; /* a kernel thread, or one that has lost its memory in exit */
	start_walk(w, regs);
	if (regs->cs != USER_CS)
		w->end = END_UNSUPPORTED; /* 32-bit code */
	else if (!walk_current(w, regs, tgid))
		return 0;
	w->hash = mix(w->hash, w->end);
	return store_stack(buffer, w->hash, w->frames, w->count, w->end) ? w->hash : STACK_LOST;
}

/* Begins the key of a row of a thread. */
static __always_inline struct row_key row_of(struct shared *shared, u32 tgid, u32 tid, u64 now)
{
	struct row_key key = {.tgid = tgid};
	if (with_threads)
		key.tid = tid;
	if (slot_ns)
		key.slot = 1 + (now - shared->control.window_start) / slot_ns;
	if (with_carried) {
		u16 *carried = bpf_map_lookup_elem(&thread_contexts, &tid);
		if (carried)
			key.carried = *carried;
	}
	return key;
}

/* Adds to a row; what finds no room is counted, with its first value. */
static __always_inline void add_to_row(u32 buffer, const struct row_key *key, const struct row_value *add)
{
	void *rows = buffer ? (void *)&rows_1 : (void *)&rows_0;
	struct row_value *row = bpf_map_lookup_elem(rows, key);
	if (!row) {
		if (!bpf_map_update_elem(rows, key, add, BPF_NOEXIST)) {
			struct arena *arena = buffer ? only(&arena_1) : only(&arena_0);
			if (arena)
				__sync_fetch_and_add(&arena->rows, 1);
			return;
		}
		row = bpf_map_lookup_elem(rows, key); /* another CPU was first, or it is full */
		if (!row) {
			count(LOST_ROWS, 1);
			count(LOST_ROWS_WEIGHT, add->values[0]);
			return;
		}
	}
	__sync_fetch_and_add(&row->samples, add->samples);
#pragma unroll
	for (int i = 0; i < VALUES; i++) {
		if (add->values[i])
			__sync_fetch_and_add(&row->values[i], add->values[i]);
		if (add->squares[i])
			__sync_fetch_and_add(&row->squares[i], add->squares[i]);
	}
}

#endif
