//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Where every thread of one process stands, without stopping any of them.
 *
 * A task iterator reads those that are off their CPUs: their registers lie at
 * the end of their kernel stacks, their user stacks in memory that the iterator
 * may read although it is another process's. A thread that ran meanwhile has a
 * torn stack; its count of context switches tells. Threads that are on a CPU
 * have no registers to be read: they are caught by a timer event of their own. */
#include "kernel.h"
#include <bpf/bpf_tracing.h>

#define WINDOW_PAGES 8

/* A stretch of the memory of the thread that is being read, copied page by
 * page. The walk's step is a global function, which can be verified once
 * because it knows nothing of the thread; so it reads from here. */
struct window {
	u64 start;
	u64 size;
	u64 missed; /* what a read wanted that is not here */
	u64 fills; /* of this thread; in memory, so that the verifier forgets it */
	u8 data[WINDOW_PAGES * 4096];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct window);
} windows SEC(".maps");

/* Set while threads are caught by timers: the walk is then of the current
 * thread, and reads its memory itself. */
volatile u32 catching;

#define WINDOW_LIMIT (WINDOW_PAGES * 4096 - 64) /* the longest read has 56 bytes */

static __always_inline long read_window(void *to, u32 size, u64 from)
{
	u32 zero = 0;
	struct window *w = bpf_map_lookup_elem(&windows, &zero);
	if (!w)
		return -1;
	u64 at = from - w->start;
	if (at >= w->size || at + size > w->size || at > WINDOW_LIMIT) {
		w->missed = from;
		return -1;
	}
	asm volatile("" : "+r"(at)); /* keeps the bound where the verifier sees it */
	if (at > WINDOW_LIMIT)
		return -1;
	return bpf_probe_read_kernel(to, size, w->data + at);
}

#define READ_USER(to, size, from) \
	(catching ? bpf_probe_read_user(to, size, (void *)(from)) : read_window(to, size, from))

#include "unwind.h"

char LICENSE[] SEC("license") = "GPL";

#define MAX_KERNEL_FRAMES 127
#define MAX_REFILLS 64
#define MAX_WALKS 513 /* one for each CPU, and the iterator's; user space makes it fewer */

const volatile u32 wanted; /* the process, by thread group id */

/* What a thread did, as user space gets it. */
struct standing {
	u32 tgid, tid;
	u32 state; /* TASK_* bits of __state and exit_state */
	u32 flags; /* STANDING_* */
	s32 syscall; /* its number; -1: none */
	u32 end; /* enum walk_end of the user stack */
	u32 user, kernel; /* frames of each */
	u64 switches; /* context switches so far */
	u64 runtime; /* ns on a CPU so far */
	char comm[16];
	u64 user_frames[MAX_FRAMES + 1];
	u64 kernel_frames[MAX_KERNEL_FRAMES + 1];
};

#define STANDING_ON_CPU 1 /* it ran while it was looked at: no stack */
#define STANDING_MOVED 2 /* it ran in between: its stack is torn */
#define STANDING_CAUGHT 4 /* by a timer, while it ran */

const struct standing *standing_type __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_WALKS);
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

/* Where the iterator puts a thread together. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct standing);
} standings SEC(".maps");

/* Threads caught by a timer. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} caught SEC(".maps");

/* Fields that only this file looks at; the part of the name after ___ is for
 * us alone. */
struct task_struct___dump {
	unsigned int __state;
	int on_cpu;
	int exit_state;
} __attribute__((preserve_access_index));

static __always_inline u64 switches_of(struct task_struct *task) { return task->nvcsw + task->nivcsw; }

static __always_inline bool on_cpu(struct task_struct *task)
{
	return ((struct task_struct___dump *)task)->on_cpu != 0;
}

/* Copies memory of a thread, from the page that holds an address on. */
static __noinline long fill_window(struct task_struct *task, u64 from)
{
	struct window *w = only(&windows);
	if (!w)
		return 0;
	u64 start = (from - 256) & ~4095ull; /* reads go mostly up, and a little down */
	w->start = start;
	w->size = 0;
	w->fills += 1;
	for (u32 page = 0; page < WINDOW_PAGES; page++) {
		if (bpf_copy_from_user_task(w->data + page * 4096, 4096, (void *)(start + page * 4096), task, 0))
			break;
		w->size = (page + 1) * 4096;
	}
	return w->size > from - start;
}

/* Walks the user stack of a thread that is off its CPU. */
static __always_inline void walk_task(struct walk *w, struct task_struct *task)
{
	struct window *memory = only(&windows);
	if (!memory)
		return;
	u32 end = 0;
	memory->fills = 0;
	fill_window(task, w->sp);
	for (u32 i = 0; i < MAX_FRAMES + 1 + MAX_REFILLS; i++) {
		u32 count = w->count;
		end = step(w);
		if (!end)
			continue;
		if (end != END_UNREADABLE || memory->fills > MAX_REFILLS)
			break;
		if (!fill_window(task, memory->missed))
			break;
		w->count = count; /* the same frame again */
	}
	w->end = end ? end : END_TOO_DEEP;
}

/* Starts a walk at a thread's registers; false where there is nothing to walk. */
static __always_inline bool begin(struct walk *w, const struct pt_regs *regs, u32 tgid)
{
	start_walk(w, regs);
	if (regs->cs != USER_CS) {
		w->end = END_UNSUPPORTED; /* 32-bit code */
		return false;
	}
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p) {
		w->end = END_NO_MAPPING;
		return false;
	}
	w->process = *p;
	return true;
}

static __always_inline void describe(struct standing *s, struct task_struct *task)
{
	struct task_struct___dump *more = (struct task_struct___dump *)task;
	s->tgid = task->tgid;
	s->tid = task->pid;
	s->state = more->__state | more->exit_state;
	s->flags = 0;
	s->syscall = -1;
	s->end = END_NO_USER;
	s->user = 0;
	s->kernel = 0;
	s->switches = switches_of(task);
	s->runtime = task->se.sum_exec_runtime;
	bpf_probe_read_kernel(s->comm, sizeof(s->comm), task->comm);
}

static __always_inline void keep(struct standing *s, struct walk *w)
{
	s->end = w->end;
	s->user = w->count;
	bpf_probe_read_kernel(s->user_frames, sizeof(s->user_frames), w->frames);
}

SEC("iter.s/task")
int list_standing(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	if (!task || task->tgid != wanted)
		return 0;
	u32 mine = 0;
	struct standing *s = only(&standings);
	struct walk *w = bpf_map_lookup_elem(&walks, &mine);
	if (!s || !w)
		return 0;
	describe(s, task);
	if (on_cpu(task)) {
		s->flags = STANDING_ON_CPU;
	} else if (!(task->flags & PF_KTHREAD)) {
		struct pt_regs regs;
		bpf_probe_read_kernel(&regs, sizeof(regs), (void *)bpf_task_pt_regs(task));
		s->syscall = (s32)regs.orig_ax;
		long bytes = bpf_get_task_stack(task, s->kernel_frames, MAX_KERNEL_FRAMES * 8, 0);
		if (bytes > 0)
			s->kernel = (u64)bytes >> 3;
		if (begin(w, &regs, s->tgid))
			walk_task(w, task);
		keep(s, w);
		if (on_cpu(task) || switches_of(task) != s->switches)
			s->flags = STANDING_MOVED;
	}
	bpf_seq_write(ctx->meta->seq, s, sizeof(*s));
	return 0;
}

/* A timer on one thread found it running. */
SEC("perf_event")
int on_timer(struct bpf_perf_event_data *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 slot = 1 + bpf_get_smp_processor_id();
	struct walk *w = bpf_map_lookup_elem(&walks, &slot);
	if (!w || id >> 32 != wanted)
		return 0;
	struct standing *s = bpf_ringbuf_reserve(&caught, sizeof(*s), 0);
	if (!s)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	describe(s, task);
	s->flags = STANDING_CAUGHT;
	struct pt_regs regs;
	__builtin_memcpy(&regs, &ctx->regs, sizeof(regs));
	if ((regs.cs & 3) == 0) {
		long bytes = bpf_get_stack(ctx, s->kernel_frames, MAX_KERNEL_FRAMES * 8, 0);
		if (bytes > 0)
			s->kernel = (u64)bytes >> 3;
		bpf_probe_read_kernel(&regs, sizeof(regs), (void *)bpf_task_pt_regs(task));
		s->syscall = (s32)regs.orig_ax;
	}
	if (begin(w, &regs, s->tgid))
		walk_stack(w);
	keep(s, w);
	bpf_ringbuf_submit(s, 0);
	return 0;
}
