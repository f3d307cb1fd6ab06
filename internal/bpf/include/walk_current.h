/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a walk needs from the kernel: the current thread's process, and a way
 * to tell user space what is missing. */
#ifndef ATYS_WALK_CURRENT_H
#define ATYS_WALK_CURRENT_H

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
			w->process = *p;
			return true;
		}
	}
	w->process.count = 0;
	w->process.changed = 0;
	w->process.known = 0;
	return false;
}

/* Asks for an executable's rows, once. */
static __always_inline void ask_for_rows(struct walk *w, u32 tgid)
{
	struct request request = {.tgid = tgid, .executable = w->hint};
	struct executables *table = EXECUTABLES();
	u32 id = w->hint;
	OPAQUE(id);
	id &= MAX_EXECUTABLES - 1;
	if (!table || table->e[id].wanted)
		return;
	table->e[id].wanted = !bpf_ringbuf_output(&requests, &request, sizeof(request), 0);
}

/* Asks for a process or address that is unknown, at most every 20 ms, and gives
 * the time since when it has been missing. Whatever user space learns of the process ends that. */
static __always_inline u64 ask_for_mapping(struct walk *w, u32 tgid, u64 now)
{
	struct request request = {.tgid = tgid, .address = w->ip - w->is_return};
	struct asked *known = bpf_map_lookup_elem(&asked, &tgid);
	struct asked ask = {.since = now, .last = now};
	if (known && known->since >= w->process.known) {
		ask.since = known->since;
		if (now - known->last < ASK_AGAIN_NS)
			return ask.since;
	}
	bpf_map_update_elem(&asked, &tgid, &ask, BPF_ANY);
	bpf_ringbuf_output(&requests, &request, sizeof(request), 0);
	return ask.since;
}

/* Asks user space for what a walk lacked, and tells one that came within 50 ms
 * of an exec or a new mapping, when it cannot be there yet, from one that user
 * space owes. */
static __always_inline void ask_for_missing(struct walk *w, u32 tgid)
{
	u64 now = bpf_ktime_get_ns(), since = w->process.changed;
	if (w->end == END_NOT_LOADED) {
		ask_for_rows(w, tgid);
	} else {
		u64 missing = ask_for_mapping(w, tgid, now);
		if (missing > since)
			since = missing;
	}
	if (now - since < STARTING_NS)
		w->end = END_STARTING;
}

#endif
