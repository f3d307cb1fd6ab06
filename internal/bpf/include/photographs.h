/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Photographs: what a function is called, copied to user space at the sample
 * that sees it for the first time. Later its process may be gone, or another
 * function where it was: a name that is looked up later can be wrong. */
#ifndef ATYS_PHOTOGRAPHS_H
#define ATYS_PHOTOGRAPHS_H

#include "frames.h"

#define PHOTOGRAPH_BYTES 2048

/* One function. What values and bytes hold is its language's business. */
struct photograph {
	u32 tgid;
	u32 kind;
	u64 what; /* as in the frames that show it */
	u64 values[8];
	u32 lengths[4];
	u8 bytes[PHOTOGRAPH_BYTES];
};

const struct photograph *photograph_type __attribute__((unused)); /* for the generated Go */

#ifndef SUBMIT_PHOTOGRAPH /* sampler/dump takes some again */
#define SUBMIT_PHOTOGRAPH(p, flags) bpf_ringbuf_submit(p, flags)
#endif

/* unwind/replay has those below, and SUBMIT_PHOTOGRAPH, of its own. */
#ifndef ATYS_REPLAY
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} photographs SEC(".maps");

/* What was photographed. Who falls out is taken again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, u64);
	__type(value, u8);
} photographed SEC(".maps");

/* What tells a function from all others of this machine, now and before: its
 * process's memory, its address, and whatever of it the caller mixed in. */
static __always_inline u64 identity(u64 address, u64 more)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 memory = 0; /* read as a number: the verifier lets no pointer be mixed */
	bpf_probe_read_kernel(&memory, sizeof(memory), &task->mm);
	return mix(mix(mix(memory, task->group_leader->start_boottime), address), more) & LANGUAGE_WHAT;
}

/* Begins the photograph of a function that has none, or gives 0. The caller
 * fills it and must end it. */
static __always_inline struct photograph *begin_photograph(struct walk *w, u32 kind, u64 what)
{
	u64 key = (u64)kind << 56 | what;
	if (bpf_map_lookup_elem(&photographed, &key))
		return 0;
	struct photograph *p = bpf_ringbuf_reserve(&photographs, sizeof(*p), 0);
	if (!p)
		return 0; /* the next sample that sees it tries again */
	u8 yes = 1;
	bpf_map_update_elem(&photographed, &key, &yes, BPF_ANY);
	p->tgid = w->owner;
	p->kind = kind;
	p->what = what;
	__builtin_memset(p->values, 0, sizeof(p->values));
	__builtin_memset(p->lengths, 0, sizeof(p->lengths));
	return p;
}

/* What was seen of late, by what it is: for functions that user space reads
 * itself, while they are there. */
#define SIGHTS 16384
#define SIGHTS_TOLD_AFTER 20000000 /* nanoseconds: user space is woken no more often for them */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SIGHTS);
	__type(key, u32);
	__type(value, u64);
} sights SEC(".maps");

u64 sights_told;

/* Tells user space at once of a function that was not seen before, or not of
 * late: what and number tell it from all others of its process. */
static __always_inline void sight(struct walk *w, u32 kind, u64 what, u64 number, u64 where)
{
	u64 key = mix(mix(what, number), w->owner);
	u32 at = (key >> 40) & (SIGHTS - 1);
	u64 *last = bpf_map_lookup_elem(&sights, &at);
	if (!last || *last == key)
		return;
	struct photograph *p = bpf_ringbuf_reserve(&photographs, sizeof(*p), 0);
	if (!p)
		return; /* the next sample that sees it tries again */
	*last = key;
	p->tgid = w->owner;
	p->kind = kind;
	p->what = what;
	p->values[0] = where;
	u64 now = bpf_ktime_get_ns();
	bool tell = now - sights_told > SIGHTS_TOLD_AFTER;
	if (tell)
		sights_told = now;
	SUBMIT_PHOTOGRAPH(p, tell ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* User space reads at each window's edge, and when the ring is half full. */
static __always_inline void end_photograph(struct photograph *p)
{
	bool full = bpf_ringbuf_query(&photographs, BPF_RB_AVAIL_DATA) > 2 * 1024 * 1024;
	SUBMIT_PHOTOGRAPH(p, full ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}
#endif

#endif
