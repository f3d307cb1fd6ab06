/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a walk needs from the kernel: the current thread's process, and a way
 * to tell user space what is missing. */
#ifndef ATYS_WALK_CURRENT_H
#define ATYS_WALK_CURRENT_H

#define WALKS_CURRENT
#include "unwind.h"

#define STARTING_NS (50 * 1000 * 1000)
#define ASK_AGAIN_NS (20 * 1000 * 1000)

/* Finds the mappings of the current thread's process. A fork that has not
 * called exec yet has its parent's: user space need not know of it. What was
 * known before an exec is not used: two programs may lie at one address. */
static __always_inline bool find_process(struct walk *w, u32 tgid)
{
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p) {
		struct task_struct *task = bpf_get_current_task_btf();
		if (task->flags & PF_FORKNOEXEC) {
			tgid = task->real_parent->tgid;
			p = bpf_map_lookup_elem(&processes, &tgid);
		}
	}
	if (p) {
		u64 *exec = bpf_map_lookup_elem(&execs, &tgid);
		if (!exec || *exec <= p->known) {
			u32 tick = TICK();
			if (p->used != tick)
				p->used = tick;
			w->process = *p;
			w->owner = tgid;
			return true;
		}
	}
	w->owner = tgid;
	w->process.count = 0;
	w->process.languages = 0;
	w->process.changed = 0;
	w->process.known = 0;
	return false;
}

/* Asks for an executable's table, once. How often it was missing tells user
 * space which to load first. */
static __always_inline void ask_for_table(struct walk *w, struct request *request)
{
	struct executables *table = EXECUTABLES();
	u32 id = w->hint;
	OPAQUE(id);
	id &= MAX_EXECUTABLES - 1;
	if (!table || __sync_fetch_and_add(&table->e[id].wanted, 1))
		return;
	if (bpf_ringbuf_output(&requests, request, sizeof(*request), 0))
		table->e[id].wanted = 0;
}

/* Asks for a chunk of an executable's rows, once. */
static __always_inline void ask_for_chunk(struct walk *w, struct request *request)
{
	struct cells *directory = CELLS();
	u32 at = w->cell;
	OPAQUE(at);
	if (!directory)
		return;
	u32 *entry = &directory->c[at & (MAX_CELLS - 1)].entry, seen = READ_ONCE(*entry);
	if (seen & (CELL_SLOT | CELL_ASKED) || __sync_val_compare_and_swap(entry, seen, seen | CELL_ASKED) != seen)
		return; /* it has come, or somebody else asked */
	request->address = w->missing;
	request->sp = w->sp;
	if (bpf_ringbuf_output(&requests, request, sizeof(*request), 0))
		__sync_val_compare_and_swap(entry, seen | CELL_ASKED, seen);
}

/* Asks for the rows that a walk lacked. */
static __always_inline void ask_for_rows(struct walk *w, u32 tgid)
{
	struct request request = {.tgid = tgid, .executable = w->hint};
	if (!w->hint)
		return;
	if (w->cell < MAX_CELLS)
		ask_for_chunk(w, &request);
	else
		ask_for_table(w, &request);
}

/* Asks for a process or address that is unknown, once it has been for the time
 * given and then at most every 20 ms, and gives the time since when it has been
 * missing. Whatever user space learns of the process ends that. */
static __always_inline u64 ask_for_mapping(struct walk *w, u32 tgid, u64 now, u64 patience)
{
	struct request request = {.tgid = tgid, .address = w->ip - w->is_return};
	struct asked *known = bpf_map_lookup_elem(&asked, &tgid);
	struct asked ask = {.since = now};
	if (known && known->since >= w->process.known)
		ask = *known;
	bool due = now - ask.since >= patience;
	if (due ? now - ask.last < ASK_AGAIN_NS : ask.since != now)
		return ask.since;
	if (due)
		ask.last = now;
	bpf_map_update_elem(&asked, &tgid, &ask, BPF_ANY);
	if (!due)
		return ask.since;
	bpf_ringbuf_output(&requests, &request, sizeof(request), 0);
	return ask.since;
}

/* When the current process began to run its program, as far as we saw it. */
static __always_inline u64 program_began(u32 tgid)
{
	u64 forked = bpf_get_current_task_btf()->group_leader->start_time;
	u64 *exec = bpf_map_lookup_elem(&execs, &tgid);
	return exec && *exec > forked ? *exec : forked;
}

/* Asks user space for what a walk lacked, and tells one that came within 50 ms
 * of an exec or a new mapping, when it cannot be there yet, from one that user
 * space owes: of a process that ran before we did it owes all. */
static __always_inline void ask_for_missing(struct walk *w, u32 tgid)
{
	u64 now = bpf_ktime_get_ns(), since = w->process.changed;
	if (!since)
		since = program_began(tgid);
	if (w->end == END_EVICTED || w->end == END_NO_ROOM) {
		ask_for_rows(w, tgid);
		return;
	}
	if (w->end == END_NOT_LOADED) {
		ask_for_rows(w, tgid);
	} else {
		u64 missing = ask_for_mapping(w, tgid, now, 0);
		if (w->process.known && missing > since)
			since = missing;
	}
	if (now - since < STARTING_NS)
		w->end = END_STARTING;
}

/* Walks the current thread's user stack; false where it has none: exec has
 * dropped the old one and not begun the new, or exit has unmapped it. */
static __always_inline bool walk_current(struct walk *w, const struct pt_regs *regs, u32 tgid)
{
	struct task_struct *task = bpf_get_current_task_btf();
	find_process(w, tgid);
	walk_stack(w);
	if (w->end == END_UNREADABLE || w->end == END_NO_MAPPING) {
		if (regs->orig_ax == NR_EXECVE || regs->orig_ax == NR_EXECVEAT || task->flags & PF_EXITING)
			return false;
	}
	if (w->end == END_NOT_LOADED || w->end == END_NO_MAPPING || w->end == END_EVICTED || w->end == END_NO_ROOM)
		ask_for_missing(w, tgid);
	else if (w->by_area) /* user space is about to learn by itself: ask if it does not */
		ask_for_mapping(w, tgid, bpf_ktime_get_ns(), STARTING_NS);
	return true;
}

#endif
