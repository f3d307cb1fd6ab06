/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The rules that say how to leave one native frame, as internal/unwind/cfi
 * makes them. A test there compares these numbers with its own.
 *
 *   row   63                    32 31                                     0
 *        +------------------------+------+-----------+--------------------+
 *        |      file offset       | type |    rbp    |        cfa         |
 *        +------------------------+------+-----------+--------------------+
 *                 32 bits            4         8               20
 *
 * A row holds from its file offset up to that of the next row. Look up the
 * interrupted pc itself in the innermost frame and after a SIGNAL frame, and
 * the return address minus 1 in every other frame.
 *
 * Unless a type says otherwise: the return address is at cfa-8 and the
 * caller's rsp is cfa.
 */
#ifndef ATYS_UNWIND_RULES_H
#define ATYS_UNWIND_RULES_H

#define UNWIND_CFA_BITS 20
#define UNWIND_RBP_BITS 8
#define UNWIND_TYPE_SHIFT 28
#define UNWIND_RBP_SHIFT 20
#define UNWIND_RBP_MASK 0xff
#define UNWIND_CFA_MASK 0xfffff

/* Nothing is known about this code. Whoever knows that its owner keeps frame
 * pointers may follow them; for others the stack is truncated here. */
#define UNWIND_GAP 0
/* cfa = rsp + 8*cfa */
#define UNWIND_SP 1
/* cfa = rbp + 8*cfa */
#define UNWIND_BP 2
/* A lazy-binding stub: cfa = rsp + 8, and 8 more once (ip & 15) >= cfa. The ip
 * is the interrupted one, a stub is never a caller. */
#define UNWIND_PLT 3
/* The code a signal handler returns to: rsp points at a ucontext, which holds
 * every register of the interrupted frame (rbp at +120, rsp at +160, rip at
 * +168). The ip found there is exact: look it up without subtracting 1. */
#define UNWIND_SIGNAL 4
/* The code says how to unwind, in a way that these rules cannot express. */
#define UNWIND_UNSUPPORTED 5
/* The outermost frame: the stack is complete. */
#define UNWIND_END 6
/* cfa = *(rbp + 8*low) + 8*high (realigned stacks: DRAP; OpenSSL) */
#define UNWIND_BP_DEREF 7
/* cfa = rbp + 16, rbp is saved at cfa-16. Also where Go code runs C or runtime
 * code on another stack: the new cfa may then be below the old rsp. */
#define UNWIND_FRAME_POINTER 8
/* cfa = *(rsp + 8*low) + 8*high (OpenSSL) */
#define UNWIND_SP_DEREF 9
/* cfa = the register numbered high (DWARF numbers) + 8*low. Usable only where
 * all registers are known: in the innermost frame, and in the one that a signal
 * interrupted. */
#define UNWIND_LEAF_REG 10
/* The return address is in the register numbered high (DWARF numbers), cfa =
 * rsp + 8*low. Usable where LEAF_REG is: vfork waits like this for the child,
 * and V8's builtins drop their arguments like this. */
#define UNWIND_RETURN_REG 11
/* Where a new thread and the one that made it come out of the system call: it
 * gives the new one 0, which has no caller. The other is as SP has it. */
#define UNWIND_FORK 12

/* Types 7, 9, 10 and 11 split the cfa field: 4 bits high, unsigned, and 16 bits
 * low, signed. */
#define UNWIND_HIGH_SHIFT 16
#define UNWIND_HIGH_MASK 0xf
#define UNWIND_LOW_MASK 0xffff

/* The rbp field, for every type that has a cfa: 0 means that rbp still holds
 * the caller's value, 1..250 that it is saved at cfa - 8*n. */
#define UNWIND_RBP_SAME 0
#define UNWIND_RBP_MAX 250
/* The caller's rbp is lost: a rule further out that needs rbp truncates. */
#define UNWIND_RBP_LOST 254
/* Saved where rbp itself points (DRAP). */
#define UNWIND_RBP_AT_RBP 255

#endif
