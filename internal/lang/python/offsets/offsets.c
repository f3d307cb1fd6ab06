//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Prints one row of the table of layouts: where the version of CPython whose
 * headers it is compiled with keeps what walks read. generate runs it. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>

#if PY_VERSION_HEX >= 0x03080000
#include "internal/pycore_pystate.h"
#elif PY_VERSION_HEX >= 0x03070000
#include "internal/pystate.h"
#endif
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include "internal/pycore_code.h"
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_interpframe.h"
#include "internal/pycore_debug_offsets.h"
#endif

/* Versions gave things other names; the oldest are used below. */
#if PY_VERSION_HEX >= 0x03070000 && PY_VERSION_HEX < 0x030c0000
#define AUTO_TSS_KEY offsetof(_PyRuntimeState, gilstate.autoTSSkey)
#elif PY_VERSION_HEX >= 0x030c0000
#define AUTO_TSS_KEY offsetof(_PyRuntimeState, autoTSSkey)
#else
#define AUTO_TSS_KEY 0 /* a variable of its own */
#endif
#if PY_VERSION_HEX >= 0x03070000 && PY_VERSION_HEX < 0x030c0000
#define CURRENT offsetof(_PyRuntimeState, gilstate.tstate_current)
#else
#define CURRENT 0
#endif
#if PY_VERSION_HEX >= 0x03070000
#define INTERPRETERS offsetof(_PyRuntimeState, interpreters.head)
#else
#define INTERPRETERS 0 /* likewise */
#endif
#if PY_VERSION_HEX >= 0x030b0000
#define THREADS offsetof(PyInterpreterState, threads.head)
#else
#define THREADS offsetof(PyInterpreterState, tstate_head)
#endif

#if PY_VERSION_HEX >= 0x030d0000
#define ACTIVATION "shims"
#define TOP offsetof(PyThreadState, current_frame)
#elif PY_VERSION_HEX >= 0x030c0000
#define ACTIVATION "entriesToShims"
#define TOP offsetof(PyThreadState, cframe)
#elif PY_VERSION_HEX >= 0x030b0000
#define ACTIVATION "entriesToFlags"
#define TOP offsetof(PyThreadState, cframe)
#else
#if PY_VERSION_HEX >= 0x030a0000
#define ACTIVATION "entries"
#else
#define ACTIVATION "calls"
#endif
#define TOP offsetof(PyThreadState, frame)
#endif

#if PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030d0000
#define ENTRY offsetof(PyThreadState, cframe)
#define ENTRY_FRAME offsetof(_PyCFrame, current_frame)
#define ENTRY_PREVIOUS offsetof(_PyCFrame, previous)
#elif PY_VERSION_HEX >= 0x030a0000 && PY_VERSION_HEX < 0x030b0000
#define ENTRY offsetof(PyThreadState, cframe)
#define ENTRY_FRAME 0
#define ENTRY_PREVIOUS offsetof(CFrame, previous)
#else
#define ENTRY 0
#define ENTRY_FRAME 0
#define ENTRY_PREVIOUS 0
#endif

#if PY_VERSION_HEX >= 0x030d0000
#define FRAME_CODE offsetof(_PyInterpreterFrame, f_executable)
#define FRAME_INSTRUCTION offsetof(_PyInterpreterFrame, instr_ptr)
#elif PY_VERSION_HEX >= 0x030b0000
#define FRAME_CODE offsetof(_PyInterpreterFrame, f_code)
#define FRAME_INSTRUCTION offsetof(_PyInterpreterFrame, prev_instr)
#else
#define FRAME_CODE offsetof(PyFrameObject, f_code)
#define FRAME_INSTRUCTION offsetof(PyFrameObject, f_lasti)
#endif
#if PY_VERSION_HEX >= 0x030b0000
#define FRAME_PREVIOUS offsetof(_PyInterpreterFrame, previous)
#define CODE_BYTES offsetof(PyCodeObject, co_code_adaptive)
#define CODE_NAME offsetof(PyCodeObject, co_qualname)
#else
#define FRAME_PREVIOUS offsetof(PyFrameObject, f_back)
#define CODE_BYTES 0
#define CODE_NAME offsetof(PyCodeObject, co_name)
#endif
#if PY_VERSION_HEX >= 0x030c0000
#define FRAME_END offsetof(_PyInterpreterFrame, owner)
#elif PY_VERSION_HEX >= 0x030b0000
#define FRAME_END offsetof(_PyInterpreterFrame, is_entry)
#else
#define FRAME_END 0
#endif
#if PY_VERSION_HEX >= 0x030a0000
#define CODE_LINES offsetof(PyCodeObject, co_linetable)
#else
#define CODE_LINES offsetof(PyCodeObject, co_lnotab)
#endif

/* Where bit fields are can only be seen by setting them. */
static unsigned lowest_bit(unsigned word)
{
	unsigned bit = 0;
	while (word && !(word & 1)) {
		word >>= 1;
		bit++;
	}
	return bit;
}

#define SHOW(name, value) printf(" " name ": %zu,", (size_t)(value))

/* Where 3.13 and later tell the same in the running process. */
static int show_debug_offsets(void)
{
#if PY_VERSION_HEX >= 0x030d0000
#define TOLD(name, field) SHOW(name, offsetof(_Py_DebugOffsets, field))
	printf("\t%d: { // %s\n\t\t", PY_MINOR_VERSION, PY_VERSION);
	TOLD("Interpreters", runtime_state.interpreters_head);
	TOLD("NextInterpreter", interpreter_state.next);
	TOLD("Threads", interpreter_state.threads_head);
	printf("\n\t\t");
	TOLD("NextThread", thread_state.next);
	TOLD("ThreadPointer", thread_state.thread_id);
	TOLD("Top", thread_state.current_frame);
	printf("\n\t\t");
	TOLD("FrameCode", interpreter_frame.executable);
	TOLD("FramePrevious", interpreter_frame.previous);
	TOLD("FrameInstruction", interpreter_frame.instr_ptr);
	TOLD("FrameEnd", interpreter_frame.owner);
	printf("\n\t\t");
	TOLD("CodeFirstLine", code_object.firstlineno);
	TOLD("CodeFile", code_object.filename);
	TOLD("CodeName", code_object.qualname);
	TOLD("CodeLines", code_object.linetable);
	TOLD("CodeBytes", code_object.co_code_adaptive);
	printf("\n\t\t");
	TOLD("StringLength", unicode_object.length);
	TOLD("StringState", unicode_object.state);
	TOLD("StringASCII", unicode_object.asciiobject_size);
	TOLD("BytesLength", bytes_object.ob_size);
	TOLD("BytesData", bytes_object.ob_sval);
	TOLD("Type", pyobject.ob_type);
	printf("\n\t},\n");
#endif
	return 0;
}

/* With an argument: where _Py_DebugOffsets tells what. */
int main(int argc, char **argv)
{
	if (argc > 1)
		return show_debug_offsets();
	static PyASCIIObject kind, ascii;
	unsigned kind_word, ascii_word;
	kind.state.kind = 7;
	ascii.state.ascii = 1;
	memcpy(&kind_word, (char *)&kind + offsetof(PyASCIIObject, state), 4);
	memcpy(&ascii_word, (char *)&ascii + offsetof(PyASCIIObject, state), 4);

	printf("\t%d: { // %s\n\t\tActivation: %s,", PY_MINOR_VERSION, PY_VERSION, ACTIVATION);
	printf("\n\t\t");
	SHOW("Key", AUTO_TSS_KEY);
	SHOW("Current", CURRENT);
	SHOW("Interpreters", INTERPRETERS);
	SHOW("NextInterpreter", offsetof(PyInterpreterState, next));
	SHOW("Threads", THREADS);
	SHOW("NextThread", offsetof(PyThreadState, next));
	SHOW("ThreadPointer", offsetof(PyThreadState, thread_id));
	printf("\n\t\t");
	SHOW("Top", TOP);
	SHOW("Entry", ENTRY);
	SHOW("EntryFrame", ENTRY_FRAME);
	SHOW("EntryPrevious", ENTRY_PREVIOUS);
	printf("\n\t\t");
	SHOW("FrameCode", FRAME_CODE);
	SHOW("FramePrevious", FRAME_PREVIOUS);
	SHOW("FrameInstruction", FRAME_INSTRUCTION);
	SHOW("FrameEnd", FRAME_END);
	printf("\n\t\t");
	SHOW("CodeFirstLine", offsetof(PyCodeObject, co_firstlineno));
	SHOW("CodeFile", offsetof(PyCodeObject, co_filename));
	SHOW("CodeName", CODE_NAME);
	SHOW("CodeLines", CODE_LINES);
	SHOW("CodeBytes", CODE_BYTES);
	printf("\n\t\t");
	SHOW("StringLength", offsetof(PyASCIIObject, length));
	SHOW("StringState", offsetof(PyASCIIObject, state));
	SHOW("StringASCII", sizeof(PyASCIIObject));
	SHOW("StringOther", sizeof(PyCompactUnicodeObject));
	SHOW("KindBit", lowest_bit(kind_word));
	SHOW("ASCIIBit", lowest_bit(ascii_word));
	printf("\n\t\t");
	SHOW("BytesLength", offsetof(PyVarObject, ob_size));
	SHOW("BytesData", offsetof(PyBytesObject, ob_sval));
	SHOW("Type", offsetof(PyObject, ob_type));
	printf("\n\t},\n");
	return 0;
}
