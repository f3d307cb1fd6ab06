/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What a walk needs from the kernel: the current thread's process, and a way
 * to tell user space what is missing. */
#ifndef ATYS_WALK_CURRENT_H
#define ATYS_WALK_CURRENT_H

#include "unwind.h"

#define STARTING_NS (50 * 1000 * 1000)
#define ASK_AGAIN_NS (20 * 1000 * 1000)

/* Finds the mappings of the current thread's process. A fork that has not
 * called exec yet has its parent's: user space need not know of it. */
static __always_inline bool find_process(struct walk *w, u32 tgid)
{
	struct process *p = bpf_map_lookup_elem(&processes, &tgid);
	if (!p) {
		struct task_struct *task = bpf_get_current_task_btf();
		if (task->flags & PF_FORKNOEXEC) {
			u32 parent = task->real_parent->tgid;
			p = bpf_map_lookup_elem(&processes, &parent);
		}
	}
	if (!p) {
		w->process.count = 0;
		w->process.changed = 0;
		return false;
	}
	w->process = *p;
	return true;
}

/* Tells a walk that ended for want of tables from one that came too early for
 * them to be there: a process unknown to us starts with its fork. */
static __always_inline void mark_starting(struct walk *w)
{
	u64 now = bpf_ktime_get_ns(), since = w->process.changed;
	if (!since) {
		struct task_struct *task = bpf_get_current_task_btf();
		now = bpf_ktime_get_boot_ns();
		since = task->group_leader->start_boottime;
	}
	if (now - since < STARTING_NS)
		w->end = END_STARTING;
}

/* Asks user space for what the walk lacked; an executable once, a process or
 * an unknown address at most every 20 ms. */
static __always_inline void ask_for_missing(struct walk *w, u32 tgid)
{
	struct request request = {.tgid = tgid, .address = w->ip - w->is_return};
	if (w->end == END_NOT_LOADED) {
		struct executables *table = EXECUTABLES();
		u32 id = w->hint;
		OPAQUE(id);
		id &= MAX_EXECUTABLES - 1;
		if (!table || table->e[id].wanted)
			return;
		table->e[id].wanted = 1;
		request.executable = id;
	} else {
		u64 key = (u64)tgid << 32 | (u32)(request.address >> 12);
		u64 now = bpf_ktime_get_ns(), *last = bpf_map_lookup_elem(&asked, &key);
		if (last && now - *last < ASK_AGAIN_NS)
			return;
		bpf_map_update_elem(&asked, &key, &now, BPF_ANY);
	}
	bpf_ringbuf_output(&requests, &request, sizeof(request), 0);
}

#endif
