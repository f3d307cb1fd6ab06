//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Where every thread of one process stands, without stopping any of them.
 *
 * A task iterator reads those that are off their CPUs: their registers lie at
 * the end of their kernel stacks, their user stacks in memory that the iterator
 * may read although it is another process's. A thread that ran meanwhile has a
 * torn stack; its count of context switches tells. Threads that are on a CPU
 * have no registers to be read: they are caught by a timer event of their own.
 *
 *   walk_task -> walk_on: steps, which read copies of pages
 *      ^            | a page is not there: the step is undone
 *      +--- copy_missed
 */
#include "kernel.h"
#include <bpf/bpf_tracing.h>

#define PAGE 4096
#define COPY_BYTES (PAGE + PAGE / 2) /* the longest read has fewer bytes than half a page */
#define COPIES 512
#define WAYS 8 /* places among COPIES that a page may have */

/* Memory of the thread that is being read: a page, and half of the next. The
 * walk's steps are global functions, which can be verified once because they
 * know nothing of the thread; so they read from here. */
struct copy {
	u64 page;
	u64 reading; /* of which thread: struct reading.number then */
	u64 size;    /* 0: that memory cannot be read */
	u8 data[COPY_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COPIES);
	__type(key, u32);
	__type(value, struct copy);
} copies SEC(".maps");

/* Set while threads are caught by timers: the walk is then of the current
 * thread, and reads its memory itself. */
volatile u32 catching;

static __always_inline long read_copied(void *to, u32 size, u64 from);
static __always_inline long read_copied_text(void *to, u32 size, u64 from);
static __always_inline u64 thread_pointer_read(void);
static __always_inline void submit_photograph(void *photograph, u64 flags);

#define READ_USER(to, size, from) \
	(catching ? bpf_probe_read_user(to, size, (void *)(from)) : read_copied(to, size, from))
#define READ_USER_TEXT(to, size, from) \
	(catching ? bpf_probe_read_user_str(to, size, (void *)(from)) : read_copied_text(to, size, from))
#define THREAD_POINTER() (catching ? bpf_get_current_task_btf()->thread.fsbase : thread_pointer_read())
#define SUBMIT_PHOTOGRAPH(photograph, flags) submit_photograph(photograph, flags)
#define WALKS_LANGUAGES
#include "unwind.h"

char LICENSE[] SEC("license") = "GPL";

#define MAX_KERNEL_FRAMES 127
#define MAX_COPIED 1024 /* pages of one thread */
#define MAX_PLACES 513 /* one for each CPU, and the iterator's; user space makes it fewer */

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

/* A walk, and the registers that it starts from. */
struct place {
	struct pt_regs user;
	struct walk walk;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PLACES);
	__type(key, u32);
	__type(value, struct place);
} places SEC(".maps");

/* How the iterator reads a thread. */
struct reading {
	u64 number; /* tells the threads apart whose memory was copied */
	u64 thread_pointer;
	u64 missed; /* the first address that was to be read and is not copied; 0: none */
	u32 next;   /* of the ways of copies, which is given up next */
	u32 unused;
	/* The walk before the step that is tried, but for its frames. */
	u8 before[__builtin_offsetof(struct walk, frames)];
	u8 state[sizeof(struct walk) - __builtin_offsetof(struct walk, process)];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct reading);
} readings SEC(".maps");

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
	__uint(max_entries, 4 * 1024 * 1024);
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

static __always_inline u64 thread_pointer_read(void)
{
	struct reading *r = only(&readings);
	u64 pointer = r ? r->thread_pointer : 0;
	OPAQUE(pointer); /* else this load and the other's become one, of two kinds of memory */
	return pointer;
}

/* The copy of a page; COPIES: there is none. */
STEP u32 find_copy(u64 page)
{
	struct reading *r = only(&readings);
	if (!r)
		return COPIES;
	u32 first = mix(0, page) >> 32;
	for (u32 i = 0; i < WAYS; i++) {
		u32 at = (first + i) & (COPIES - 1);
		struct copy *c = bpf_map_lookup_elem(&copies, &at);
		if (c && c->page == page && c->reading == r->number)
			return at;
	}
	if (!r->missed)
		r->missed = page;
	return COPIES;
}

/* The copy that holds an address, if so many bytes from there on are in it. */
static __always_inline const u8 *copied(u64 from, u32 size)
{
	u32 at = find_copy(from & ~(PAGE - 1ull));
	struct copy *c = bpf_map_lookup_elem(&copies, &at);
	u64 within = from & (PAGE - 1);
	if (!c || within + size > c->size)
		return 0;
	OPAQUE(within);
	return c->data + (within & (PAGE - 1));
}

static __always_inline long read_copied(void *to, u32 size, u64 from)
{
	const u8 *bytes = copied(from, size);
	return bytes ? bpf_probe_read_kernel(to, size, bytes) : -1;
}

static __always_inline long read_copied_text(void *to, u32 size, u64 from)
{
	const u8 *bytes = copied(from, 1);
	return bytes ? bpf_probe_read_kernel_str(to, size, bytes) : -1;
}

/* A photograph that lacks what was not copied yet is taken again. */
static __always_inline void submit_photograph(void *photograph, u64 flags)
{
	struct photograph *p = photograph;
	struct reading *r = only(&readings);
	if (catching || !r || !r->missed) {
		bpf_ringbuf_submit(p, flags);
		return;
	}
	u64 key = (u64)p->kind << 56 | p->what;
	bpf_map_delete_elem(&photographed, &key);
	bpf_ringbuf_discard(p, 0);
}

/* Chooses where a page is to be copied to: a copy that another thread left, or
 * one after the other. */
STEP u32 choose_copy(u64 page)
{
	struct reading *r = only(&readings);
	if (!r)
		return 0;
	u32 first = mix(0, page) >> 32;
	for (u32 i = 0; i < WAYS; i++) {
		u32 at = (first + i) & (COPIES - 1);
		struct copy *c = bpf_map_lookup_elem(&copies, &at);
		if (c && c->reading != r->number)
			return at;
	}
	r->next++;
	return (first + r->next % WAYS) & (COPIES - 1);
}

/* Copies memory of a thread, or notes that it cannot be read. */
static __always_inline void copy_missed(struct reading *r, struct task_struct *task)
{
	u64 page = r->missed;
	u32 at = choose_copy(page);
	struct copy *c = bpf_map_lookup_elem(&copies, &at);
	if (!c)
		return;
	c->page = page;
	c->reading = r->number;
	c->size = 0;
	r->missed = 0;
	if (bpf_copy_from_user_task(c->data, PAGE, (void *)page, task, 0))
		return;
	c->size = COPY_BYTES;
	if (!bpf_copy_from_user_task(c->data + PAGE, COPY_BYTES - PAGE, (void *)(page + PAGE), task, 0))
		return;
	c->size = PAGE;
	c->data[PAGE] = 0; /* where text ends */
}

#define MEMORY_MISSED 65 /* beside enum walk_end and STEP_IN_CODE_MADE */

/* Walks on until the stack ends, or memory is wanted that is not copied. The
 * step that wanted it is as if it had not been. */
STEP u32 walk_on(struct walk *w)
{
	struct reading *r = only(&readings);
	if (!w || !r)
		return END_CORRUPT;
	for (u32 i = 0; i < MAX_FRAMES + 1; i++) {
		bpf_probe_read_kernel(r->before, sizeof(r->before), w);
		bpf_probe_read_kernel(r->state, sizeof(r->state), &w->process);
		u32 end = advance(w);
		if (r->missed) {
			bpf_probe_read_kernel(w, sizeof(r->before), r->before);
			bpf_probe_read_kernel(&w->process, sizeof(r->state), r->state);
			return MEMORY_MISSED;
		}
		if (end)
			return end;
	}
	return END_TOO_DEEP;
}

/* Walks the user stack of a thread that is off its CPU. */
static __always_inline void walk_task(struct walk *w, struct task_struct *task)
{
	struct reading *r = only(&readings);
	if (!r)
		return;
	r->number++;
	r->thread_pointer = task->thread.fsbase;
	r->missed = w->sp & ~(PAGE - 1ull);
	u32 end = MEMORY_MISSED;
	for (u32 i = 0; i < MAX_COPIED && end == MEMORY_MISSED; i++) {
		copy_missed(r, task);
		end = walk_on(w);
	}
	w->end = end == MEMORY_MISSED ? END_UNREADABLE : end;
	r->missed = 0;
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
	w->owner = tgid;
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
	struct place *place = bpf_map_lookup_elem(&places, &mine);
	if (!s || !place)
		return 0;
	struct walk *w = &place->walk;
	struct pt_regs *user = &place->user;
	describe(s, task);
	if (on_cpu(task)) {
		s->flags = STANDING_ON_CPU;
	} else if (!(task->flags & PF_KTHREAD)) {
		bpf_probe_read_kernel(user, sizeof(*user), (void *)bpf_task_pt_regs(task));
		s->syscall = (s32)user->orig_ax;
		long bytes = bpf_get_task_stack(task, s->kernel_frames, MAX_KERNEL_FRAMES * 8, 0);
		if (bytes > 0)
			s->kernel = (u64)bytes >> 3;
		if (begin(w, user, s->tgid))
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
	struct place *place = bpf_map_lookup_elem(&places, &slot);
	if (!place || id >> 32 != wanted)
		return 0;
	struct walk *w = &place->walk;
	struct pt_regs *user = &place->user;
	struct standing *s = bpf_ringbuf_reserve(&caught, sizeof(*s), 0);
	if (!s)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	describe(s, task);
	s->flags = STANDING_CAUGHT;
	*user = ctx->regs;
	if ((user->cs & 3) == 0) {
		long bytes = bpf_get_stack(ctx, s->kernel_frames, MAX_KERNEL_FRAMES * 8, 0);
		if (bytes > 0)
			s->kernel = (u64)bytes >> 3;
		bpf_probe_read_kernel(user, sizeof(*user), (void *)bpf_task_pt_regs(task));
		s->syscall = (s32)user->orig_ax;
	}
	if (begin(w, user, s->tgid))
		walk_stack(w);
	keep(s, w);
	bpf_ringbuf_submit(s, 0);
	return 0;
}
