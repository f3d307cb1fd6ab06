//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Follows processes for all samplers of this machine: children of targets become
 * targets, and the kernel's exact times of threads are read, from a list at the edges
 * of windows and from exits in between. */
#include "kernel.h"
#include <bpf/bpf_tracing.h>
#include "rows.h"
#include "targets.h"

char LICENSE[] SEC("license") = "GPL";

/* A type that only functions use would be missing from the generated Go. */
const enum counter *counter_type __attribute__((unused));

/* What user space and programs share. Masks have a bit for each table. */
struct tracking {
	u32 hears_all;			/* tables that hear of all exits; others of those of their targets */
	u32 alert;			/* tables whose next birth is reported, which clears their bit */
	u32 choosing;			/* tables that may have targets: without any, none is looked up */
	u32 unused;
	u64 births[MAX_TABLES];		/* threads and children that targets have started */
	u64 lost_exits[MAX_TABLES];	/* exits for which the ring had no room */
	u64 lost_targets[MAX_TABLES];	/* children of targets for which the map had no room */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tracking);
} tracking_state SEC(".maps");

/* Wakes user space at a birth that a table waits for. A record is a mask of tables. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} births SEC(".maps");

/* The times of a thread that exits: when exit begins, and again when the kernel
 * forgets it. In between it still runs, to give its memory back. */
struct exited {
	u32 tgid, tid;
	u32 settled; /* the kernel has forgotten it */
	u32 tables;  /* that hear of it */
	u64 runtime, utime, stime, run_delay;
	u64 started, at; /* CLOCK_BOOTTIME ns */
	char comm[16];
	char process[16];
};

const struct exited *exited_type __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} exits SEC(".maps");

/* A thread with its exact times. */
struct thread_times {
	u32 tgid, tid;
	u64 runtime, utime, stime, run_delay;
	u64 switches;
	u64 started; /* CLOCK_BOOTTIME ns */
	u32 tables;  /* that sample its process: user space may not have heard of it yet */
	u32 dead;
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
	struct target *target = bpf_map_lookup_elem(&targets, &tgid);
	struct thread_times t = {
		.tgid = tgid,
		.tid = task->pid,
		.runtime = task->se.sum_exec_runtime,
		.utime = task->utime,
		.stime = task->stime,
		.run_delay = task->sched_info.run_delay,
		.switches = task->nvcsw + task->nivcsw,
		.started = task->start_boottime,
		.tables = target ? target->tables : 0,
		.dead = task->exit_state != 0,
	};
	bpf_probe_read_kernel(t.comm, sizeof(t.comm), task->comm);
	bpf_probe_read_kernel(t.process, sizeof(t.process), task->group_leader->comm);
	bpf_seq_write(ctx->meta->seq, &t, sizeof(t));
	return 0;
}

/* Adds one to the counters of tables in a mask. */
static __always_inline void count_each(u64 counters[MAX_TABLES], u32 tables)
{
	for (u32 i = 0; i < MAX_TABLES; i++) {
		if (tables >> i & 1)
			__sync_fetch_and_add(&counters[i], 1);
	}
}

/* Counts a birth, and wakes those who wait for one. */
static __always_inline void report_birth(struct tracking *tracking, u32 tables)
{
	count_each(tracking->births, tables);
	u32 waiting = READ_ONCE(tracking->alert) & tables;
	if (waiting && !bpf_ringbuf_output(&births, &waiting, sizeof(waiting), BPF_RB_FORCE_WAKEUP))
		__sync_fetch_and_and(&tracking->alert, ~waiting);
}

/* Children of a target are targets from their first instruction. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	struct tracking *tracking = only(&tracking_state);
	if (!tracking || !READ_ONCE(tracking->choosing))
		return 0;
	struct target *t = bpf_map_lookup_elem(&targets, &from);
	if (!t)
		return 0;
	u32 tables = t->tables;
	report_birth(tracking, tables);
	if (from != to && bpf_map_update_elem(&targets, &to, t, BPF_ANY))
		count_each(tracking->lost_targets, tables);
	return 0;
}

/* Reports the times of a thread to the tables that want them. */
static __always_inline void report_exit(struct task_struct *task, u32 settled)
{
	u32 tgid = task->tgid;
	struct tracking *tracking = only(&tracking_state);
	if (!tracking)
		return;
	u32 tables = READ_ONCE(tracking->hears_all);
	if (READ_ONCE(tracking->choosing) & ~tables) {
		struct target *t = bpf_map_lookup_elem(&targets, &tgid);
		tables |= t ? t->tables : 0;
	}
	if (!tables)
		return;
	struct exited *e = bpf_ringbuf_reserve(&exits, sizeof(*e), 0);
	if (!e) {
		count_each(tracking->lost_exits, tables);
		return;
	}
	e->tgid = tgid;
	e->tid = task->pid;
	e->settled = settled;
	e->tables = tables;
	e->runtime = task->se.sum_exec_runtime;
	e->utime = task->utime;
	e->stime = task->stime;
	e->run_delay = task->sched_info.run_delay;
	e->started = task->start_boottime;
	e->at = bpf_ktime_get_boot_ns();
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), task->comm);
	e->process[0] = 0;
	if (!settled) /* later its leader may be gone */
		bpf_probe_read_kernel(e->process, sizeof(e->process), task->group_leader->comm);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	report_exit(task, 0);
	return 0; /* its process stays a target: its other threads may still be exiting */
}

/* The kernel forgets a thread: nothing of it runs any more. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(on_free, struct task_struct *task)
{
	report_exit(task, 1);
	return 0;
}
