//go:build ignore
// Walks stacks with elfutils: the oracle's witness. It shares no code and no
// tables with our unwinder, only the registers and the stack's bytes.
//
// Read from standard input, in the machine's byte order:
//
//	M space:u32 modules:u32 {bias:u64 length:u32 path}      the files of an address space
//	S space:u32 dwarf registers 0-16:u64[17] size:u32 bytes a stack: its bytes begin at rsp
//
// Each S is answered by a line: how the walk ended, then a tab and
// "pc flags name" for each frame, innermost first. Flags: a, the pc is exact,
// not a return address; n, no unwind information covers it, so that what
// follows is libdwfl's guess by frame pointer. A name has the function's
// offset behind it.
#define _GNU_SOURCE
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REGISTERS = 17, RSP = 7, RETURN_ADDRESS = 16, MAX_FRAMES = 200, MAX_SPACES = 1 << 16, MAX_STACK = 1 << 16 };

struct stack {
	uint64_t registers[REGISTERS];
	uint32_t size;
	uint8_t bytes[MAX_STACK];
	int frames;
	bool missing;   // the walk wanted memory that was not recorded
	bool below;     // it wanted what lies below rsp, which the kernel does not record
	uint64_t popped[REGISTERS]; // where the innermost frame had saved a register, if below rsp
	bool outermost; // the last frame is marked as such
};

static struct stack stack;
static FILE *line; // the frames of an answer: how the walk ended comes before them
static Dwfl *spaces[MAX_SPACES];

static char no_path[] = "";
static char *debug_path = no_path;
static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debug_path,
};

static void need(void *to, size_t size)
{
	if (size && fread(to, size, 1, stdin) != 1) {
		fprintf(stderr, "walk: input ends within a message\n");
		exit(1);
	}
}

static uint32_t number(void)
{
	uint32_t n;

	need(&n, sizeof n);
	return n;
}

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread)
{
	(void)dwfl;
	if (*thread)
		return 0;
	*thread = arg;
	return 1;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread)
{
	(void)dwfl;
	(void)tid;
	*thread = arg;
	return true;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr at, Dwarf_Word *value, void *arg)
{
	struct stack *s = arg;
	uint64_t from = at - s->registers[RSP];

	(void)dwfl;
	if (at < s->registers[RSP]) {
		for (int i = 0; i < REGISTERS; i++)
			if (s->popped[i] == at) {
				*value = s->registers[i];
				return true;
			}
		s->below = true;
		return false;
	}
	if (from > s->size || s->size - from < sizeof *value) {
		s->missing = true;
		return false;
	}
	memcpy(value, s->bytes + from, sizeof *value);
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	struct stack *s = arg;

	return dwfl_thread_state_registers(thread, 0, REGISTERS, s->registers);
}

static const Dwfl_Thread_Callbacks threads = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = read_memory,
	.set_initial_registers = set_registers,
};

// covered tells whether there is unwind information, and whether it says that
// there is no caller: no place holds a return address.
static bool covered(Dwarf_CFI *cfi, Dwarf_Addr pc, bool *outermost)
{
	Dwarf_Frame *frame;
	Dwarf_Op room[3], *ops;
	size_t count;

	if (!cfi || dwarf_cfi_addrframe(cfi, pc, &frame) != 0)
		return false;
	*outermost = dwarf_frame_register(frame, RETURN_ADDRESS, room, &ops, &count) == 0 && count == 0 && ops == room;
	free(frame);
	return true;
}

// find_popped lists the registers that an epilogue has popped already: compilers
// leave the rule that they are saved, in slots that are below rsp by then.
static void find_popped(struct stack *s, Dwfl *dwfl)
{
	Dwarf_Addr pc = s->registers[RETURN_ADDRESS], bias;
	Dwfl_Module *module = dwfl_addrmodule(dwfl, pc);
	Dwarf_CFI *cfi = module ? dwfl_module_eh_cfi(module, &bias) : 0;
	Dwarf_Frame *frame;
	Dwarf_Op room[3], *ops;
	size_t count;

	memset(s->popped, 0, sizeof s->popped);
	if (!cfi || dwarf_cfi_addrframe(cfi, pc - bias, &frame) != 0)
		return;
	if (dwarf_frame_cfa(frame, &ops, &count) == 0 && count == 1 && ops[0].atom == DW_OP_bregx && ops[0].number < REGISTERS) {
		uint64_t cfa = s->registers[ops[0].number] + ops[0].number2;
		for (int i = 0; i < RETURN_ADDRESS; i++) {
			if (dwarf_frame_register(frame, i, room, &ops, &count) != 0 || count != 2 ||
			    ops[0].atom != DW_OP_call_frame_cfa || ops[1].atom != DW_OP_plus_uconst)
				continue;
			uint64_t slot = cfa + ops[1].number;
			if (slot < s->registers[RSP])
				s->popped[i] = slot;
		}
	}
	free(frame);
}

static int print_frame(Dwfl_Frame *state, void *arg)
{
	struct stack *s = arg;
	Dwarf_Addr pc, bias = 0;
	bool activation;

	if (++s->frames > MAX_FRAMES || !dwfl_frame_pc(state, &pc, &activation))
		return DWARF_CB_ABORT;
	Dwarf_Addr at = activation ? pc : pc - 1;
	Dwfl_Module *module = dwfl_addrmodule(dwfl_thread_dwfl(dwfl_frame_thread(state)), at);
	bool known = false;
	const char *name = "?";
	GElf_Off offset = 0;
	s->outermost = false;
	if (module) {
		Dwarf_CFI *cfi = dwfl_module_eh_cfi(module, &bias);
		known = covered(cfi, at - bias, &s->outermost);
		if (!known) {
			cfi = dwfl_module_dwarf_cfi(module, &bias);
			known = covered(cfi, at - bias, &s->outermost);
		}
		GElf_Sym symbol;
		const char *found = dwfl_module_addrinfo(module, at, &offset, &symbol, 0, 0, 0);
		if (found)
			name = found;
		else
			offset = 0;
	}
	fprintf(line, "\t%" PRIx64 " %s%s- %s+0x%" PRIx64, (uint64_t)pc, activation ? "a" : "", known ? "" : "n", name,
		(uint64_t)offset);
	return DWARF_CB_OK;
}

static void read_space(void)
{
	uint32_t id = number(), modules = number();

	if (id >= MAX_SPACES) {
		fprintf(stderr, "walk: too many address spaces\n");
		exit(1);
	}
	Dwfl *dwfl = dwfl_begin(&callbacks);
	dwfl_report_begin(dwfl);
	for (uint32_t i = 0; i < modules; i++) {
		uint64_t bias;
		char path[4096];
		need(&bias, sizeof bias);
		uint32_t length = number();
		if (length >= sizeof path) {
			fprintf(stderr, "walk: path too long\n");
			exit(1);
		}
		need(path, length);
		path[length] = 0;
		if (!dwfl_report_elf(dwfl, path, path, -1, bias, true))
			fprintf(stderr, "walk: %s: %s\n", path, dwfl_errmsg(-1));
	}
	dwfl_report_end(dwfl, 0, 0);
	if (!dwfl_attach_state(dwfl, 0, getpid(), &threads, &stack))
		fprintf(stderr, "walk: attach: %s\n", dwfl_errmsg(-1));
	spaces[id] = dwfl;
}

static void walk_stack(void)
{
	uint32_t id = number();

	need(stack.registers, sizeof stack.registers);
	stack.size = number();
	if (id >= MAX_SPACES || !spaces[id] || stack.size > MAX_STACK) {
		fprintf(stderr, "walk: bad stack message\n");
		exit(1);
	}
	need(stack.bytes, stack.size);
	stack.frames = 0;
	stack.missing = stack.below = false;
	find_popped(&stack, spaces[id]);

	char *text;
	size_t length;
	line = open_memstream(&text, &length);
	int result = dwfl_getthread_frames(spaces[id], 1, print_frame, &stack);
	// libdwfl takes what it could not read for the end.
	const char *why = stack.missing ? "stack bytes missing" : result != 0 ? dwfl_errmsg(-1) : "complete";
	if (result == 0 && stack.below && !stack.outermost)
		why = "bytes below rsp missing";
	fclose(line);
	printf("%s%s\n", why ? why : "stopped", text);
	free(text);
}

int main(void)
{
	for (int kind; (kind = getchar()) != EOF;) {
		if (kind == 'M')
			read_space();
		else if (kind == 'S')
			walk_stack();
		else
			return 2;
		fflush(stdout);
	}
	return 0;
}
