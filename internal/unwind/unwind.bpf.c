//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Where the unwinder's maps are made and exec is noted; and the proof that it loads and
 * walks when a thread leaves the CPU (tp_btf/sched_switch), not only in a clock
 * interrupt: the same header serves both. */
#include "kernel.h"
#include <bpf/bpf_tracing.h>
#define WALKS_LANGUAGES
#include "walk_current.h"

char LICENSE[] SEC("license") = "GPL";

/* Types that only functions use would be missing from the generated Go. */
const struct request *request_type __attribute__((unused));
const enum walk_end *walk_end_type __attribute__((unused));

/* The walk in progress on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

/* How many walks ended in which way. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16);
	__type(key, u32);
	__type(value, u64);
} ends SEC(".maps");

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	u32 tgid = task->tgid;
	u64 now = bpf_ktime_get_ns();
	bpf_map_update_elem(&execs, &tgid, &now, BPF_ANY);
	return 0;
}

/* Whether walks can find mappings that user space does not know: see areas.h. */
SEC("syscall")
int knows_tree(void *ctx)
{
	return tree_is_known();
}

SEC("tp_btf/sched_switch")
int BPF_PROG(walk_at_switch, bool preempt, struct task_struct *prev)
{
	struct walk *w = only(&walks);
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	if (!w || !find_process(w, tgid))
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	start_walk(w, regs);
	if (!walk_current(w, regs, tgid))
		return 0;
	u32 end = w->end & 15;
	u64 *count = bpf_map_lookup_elem(&ends, &end);
	if (count)
		*count += 1;
	return 0;
}
