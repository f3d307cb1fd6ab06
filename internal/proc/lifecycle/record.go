package lifecycle

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

var native = binary.LittleEndian

// trailer is what sample_id_all appends to each record: {pid, tid u32, time u64}.
const trailer = 16

// commExecMisc marks a COMM record that came from exec.
const commExecMisc = 1 << 13

// parse reads one record:
//
//	type u32 | misc u16 | size u16 | body ... | pid u32 | tid u32 | time u64
//
// ok is false for records that do not matter to us, and for damaged ones.
func parse(record []byte) (e Event, ok bool) {
	if len(record) < 8+trailer {
		return Event{}, false
	}
	kind, misc := native.Uint32(record), native.Uint16(record[4:])
	body := record[8 : len(record)-trailer]
	e.Time = native.Uint64(record[len(record)-8:])
	switch kind {
	case unix.PERF_RECORD_FORK, unix.PERF_RECORD_EXIT:
		return parseTask(e, kind, body)
	case unix.PERF_RECORD_COMM:
		if misc&commExecMisc == 0 || len(body) < 8 {
			return Event{}, false
		}
		e.Kind, e.PID, e.TID = Exec, int(native.Uint32(body)), int(native.Uint32(body[4:]))
		return e, true
	case unix.PERF_RECORD_MMAP2:
		return parseMap(e, body)
	case unix.PERF_RECORD_LOST:
		if len(body) < 16 {
			return Event{}, false
		}
		e.Kind, e.Lost = Lost, native.Uint64(body[8:])
		return e, true
	}
	return Event{}, false
}

// parseTask reads {pid, ppid, tid, ptid u32, time u64}.
func parseTask(e Event, kind uint32, body []byte) (Event, bool) {
	if len(body) < 24 {
		return Event{}, false
	}
	e.PID, e.Parent, e.TID = int(native.Uint32(body)), int(native.Uint32(body[4:])), int(native.Uint32(body[8:]))
	switch {
	case kind == unix.PERF_RECORD_EXIT:
		e.Kind = Exit
		return e, e.PID == e.TID
	case e.PID == e.Parent:
		e.Kind = Thread
	default:
		e.Kind = Fork
	}
	return e, true
}

// parseMap reads {pid, tid u32, addr, len, pgoff u64, maj, min u32, ino,
// ino_generation u64, prot, flags u32, filename}.
func parseMap(e Event, body []byte) (Event, bool) {
	if len(body) < 64 {
		return Event{}, false
	}
	e.Kind = Map
	e.PID, e.TID = int(native.Uint32(body)), int(native.Uint32(body[4:]))
	start, length := native.Uint64(body[8:]), native.Uint64(body[16:])
	name, _, _ := bytes.Cut(body[64:], []byte{0})
	e.Map = Mapping{
		Start: start, End: start + length, Offset: native.Uint64(body[24:]),
		Major: native.Uint32(body[32:]), Minor: native.Uint32(body[36:]), Inode: native.Uint64(body[40:]),
		Path: string(name),
	}
	if executable := native.Uint32(body[56:])&unix.PROT_EXEC != 0; !executable || e.Map.End < start {
		return Event{}, false
	}
	return e, true
}
