package table

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// batchSize is how many rows one system call takes out of the kernel's table.
const batchSize = 4096

// drainer turns one buffer of the kernel into a window. It keeps its scratch
// space from window to window.
type drainer struct {
	keys    []kernelRowKey
	rows    []kernelRowValue
	hashes  []uint64
	offsets []uint32

	stacks map[uint64]uint32 // hash -> word in the arena
	frames map[unwind.FrameKey]span
	lately [lately]struct { // of frames, those met last: most are met again at once
		key    unwind.FrameKey
		places span
	}
	places   []profile.LocationID // of all frames
	files    map[uint32]unwind.File
	combined map[stackPair]profile.StackID
	buffer   []profile.LocationID
	used     map[ThreadID]profile.Thread
	names    map[int]string // of processes; nil: none was asked for
	unseen   map[int]bool   // processes of a cgroup that came and went: nobody heard what they used
}

// span is where the places of a frame are: as many as calls are inlined there.
type span struct{ from, to uint32 }

const (
	lately  = 1 << 12
	maxRows = 32768 // of a buffer; rows_map of rows.h
)

// stackLost is STACK_LOST of rows.h: in place of the hash of a stack that
// found no room.
const stackLost = 1

type stackPair struct {
	user, kernel uint64
	pid          uint32
}

// Window drains the rows of a window that has ended. The head must have its value types.
// Each sample is one whose time was kept.
func (t *Table) Window(e *Edge, samples []TimedSample) (*profile.Window, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addLosses(&e.Head, e.Buffer)
	return t.drain.window(t, e, samples)
}

// window empties a buffer that no program writes to any more.
func (d *drainer) window(t *Table, e *Edge, samples []TimedSample) (*profile.Window, error) {
	rows, stacks := t.objects.Rows0, t.objects.Stacks0
	if e.Buffer == 1 {
		rows, stacks = t.objects.Rows1, t.objects.Stacks1
	}
	arena := t.arenas[e.Buffer].Value
	if err := d.takeStacks(stacks); err != nil {
		return nil, err
	}
	b := profile.NewBuilder(e.Head)
	d.forget()
	d.used, d.names, d.unseen = e.Used, nil, map[int]bool{}
	threads := d.addThreads(t, b, e.Used)
	err := drainMap(rows, &d.keys, &d.rows, func(k kernelRowKey, v kernelRowValue) {
		d.addRow(t, b, arena, threads, k, v)
	})
	if err != nil {
		return nil, fmt.Errorf("drain rows: %w", err)
	}
	for _, sample := range samples {
		d.addSample(t, b, arena, threads, e.start, sample)
	}
	b.Head().AddLoss(profile.Loss{Reason: profile.LossExact, Detail: unseenDetail, N: int64(len(d.unseen))})
	atomic.StoreUint64(&arena.Next, 0)
	atomic.StoreUint64(&arena.Rows, 0)
	return b.Window(), nil
}

// forget makes room for another window. What was large is kept for the next.
func (d *drainer) forget() {
	if d.frames == nil {
		d.frames, d.files, d.combined = map[unwind.FrameKey]span{}, map[uint32]unwind.File{}, map[stackPair]profile.StackID{}
	}
	clear(d.frames)
	clear(d.lately[:])
	clear(d.files)
	clear(d.combined)
	d.places = d.places[:0]
}

// takeStacks empties the index of stacks.
func (d *drainer) takeStacks(m *ebpf.Map) error {
	if d.stacks == nil {
		d.stacks = map[uint64]uint32{}
	}
	clear(d.stacks)
	err := drainMap(m, &d.hashes, &d.offsets, func(hash uint64, offset uint32) { d.stacks[hash] = offset })
	if err != nil {
		return fmt.Errorf("drain stacks: %w", err)
	}
	return nil
}

// drainMap empties a hash map in batches.
func drainMap[K, V any](m *ebpf.Map, keys *[]K, values *[]V, each func(K, V)) error {
	if *keys == nil {
		*keys, *values = make([]K, batchSize), make([]V, batchSize)
	}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, *keys, *values, nil)
		for i := range n {
			each((*keys)[i], (*values)[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// addThreads lists the threads that used time, sampled or not.
func (d *drainer) addThreads(t *Table, b *profile.Builder, used map[ThreadID]profile.Thread) map[ThreadID]profile.ThreadID {
	ids := make(map[ThreadID]profile.ThreadID, len(used))
	for id, thread := range used {
		b.Head().Exact.Add(thread.Exact)
		if thread.Process == "" {
			thread.Process = d.process(t, id.PID)
		}
		if t.options.Threads {
			ids[id] = b.Thread(thread)
		}
	}
	return ids
}

func (d *drainer) addRow(t *Table, b *profile.Builder, arena *kernelArena, threads map[ThreadID]profile.ThreadID,
	k kernelRowKey, v kernelRowValue) {
	stack, end := d.stack(t, b, arena, stackPair{k.UserStack, k.KernelStack, k.Tgid})
	row := profile.Row{Stack: stack, Thread: d.thread(t, b, threads, k.Tgid, k.Tid), Slot: k.Slot, N: int64(v.Samples)}
	if t.options.Context != nil {
		row.Context = b.Context(t.options.Context(k.Reason, k.Carried))
	}
	for i := range b.Head().Types {
		row.Values, row.Squares = append(row.Values, int64(v.Values[i])), append(row.Squares, t.options.squares(i, v.Squares[i]))
	}
	b.Add(row)
	if t.options.Cgroup != "" && d.cameAndWent(t, int(k.Tgid)) {
		d.unseen[int(k.Tgid)] = true
		b.Head().AddLoss(profile.Loss{Reason: profile.LossExact, Detail: unseenDetail, Value: row.Values[0]})
	}
	switch {
	case end == profile.EndStarting:
		b.Head().AddLoss(profile.Loss{Reason: profile.LossStarting, Detail: end.String(), N: row.N, Value: row.Values[0]})
	case end.Truncated():
		b.Head().AddLoss(profile.Loss{Reason: profile.LossTruncated, Detail: end.String(), N: row.N, Value: row.Values[0]})
	}
}

func (d *drainer) thread(t *Table, b *profile.Builder, threads map[ThreadID]profile.ThreadID, tgid, tid uint32) profile.ThreadID {
	if tid == 0 {
		return 0
	}
	id := ThreadID{int(tgid), int(tid)}
	known, ok := threads[id]
	if !ok { // sampled, but its exact time is not known: it exited while its ring was full
		known = b.Thread(profile.Thread{PID: id.PID, TID: id.TID, Process: d.process(t, id.PID)})
		threads[id] = known
	}
	return known
}

// endedProcess is what a process is called that has ended before anybody heard what
// it was called: without a name its samples would be of a service without one.
const endedProcess = "[ended]"

// unseenDetail is why there is no exact time of some samples' processes.
const unseenDetail = "of processes that came and went unseen"

// heard gives what processes are called whose threads' times are known.
func (d *drainer) heard(t *Table) map[int]string {
	if d.names == nil {
		d.names = map[int]string{}
		t.tracker.mu.Lock()
		for id, thread := range t.exact.before {
			d.names[id.PID] = cmp.Or(d.names[id.PID], thread.process)
		}
		t.tracker.mu.Unlock()
		for id, thread := range d.used {
			d.names[id.PID] = cmp.Or(d.names[id.PID], thread.Process)
		}
	}
	return d.names
}

// cameAndWent tells whether nobody heard what a process of a cgroup used.
func (d *drainer) cameAndWent(t *Table, pid int) bool {
	_, heard := d.heard(t)[pid]
	return d.unseen[pid] || !heard
}

// process names the process of a thread that we know nothing of.
func (d *drainer) process(t *Table, pid int) string {
	d.heard(t)
	if d.names[pid] == "" {
		d.names[pid] = endedProcess
		if stat, err := (proc.FS{}).Stat(pid); err == nil {
			d.names[pid] = stat.Comm
		}
	}
	return d.names[pid]
}

// stack joins a kernel and a user stack, leaf first.
func (d *drainer) stack(t *Table, b *profile.Builder, arena *kernelArena, pair stackPair) (profile.StackID, profile.End) {
	if id, ok := d.combined[pair]; ok {
		return id, b.StackEnd(id)
	}
	d.buffer = d.buffer[:0]
	end := profile.EndNoUser
	lost := pair.kernel != 0 && d.appendFrames(t, b, arena, pair.kernel, pair.pid) == profile.EndLost
	if lost {
		d.buffer = append(d.buffer, b.Location(profile.Location{Kind: profile.KindKernel, Name: "[kernel stack lost]"}))
	}
	if pair.user != 0 {
		end = d.appendFrames(t, b, arena, pair.user, pair.pid)
	}
	if lost || pair.user == 0 && pair.kernel == 0 {
		end = profile.EndLost
	}
	id := b.Stack(d.buffer, end)
	d.combined[pair] = id
	return id, end
}

func (d *drainer) appendFrames(t *Table, b *profile.Builder, arena *kernelArena, hash uint64, pid uint32) profile.End {
	at, ok := d.stacks[hash]
	if hash == stackLost || !ok || uint64(at) >= uint64(len(arena.Words)) {
		return profile.EndLost
	}
	head := arena.Words[at]
	n, end := uint32(head), profile.End(head>>32)
	if uint64(at)+1+uint64(n) > uint64(len(arena.Words)) {
		return profile.EndLost
	}
	for words := t.skip(arena.Words[at+1 : at+1+n]); len(words) > 0; {
		key, taken := unwind.KeyOf(words, pid)
		met := &d.lately[key.Hash()%lately]
		if met.key != key {
			met.key, met.places = key, d.meet(t, b, key, words, pid)
		}
		d.buffer = append(d.buffer, d.places[met.places.from:met.places.to]...)
		words = words[taken:]
	}
	return end
}

// mostSkipped bounds how many frames can be left out of a stack.
const mostSkipped = 16

// skip leaves out the innermost kernel frames of some words, as the sampler says.
func (t *Table) skip(words []uint64) []uint64 {
	if t.options.Skip == nil {
		return words
	}
	var addresses []uint64
	rests := [][]uint64{words}
	for rest := words; len(rest) > 0 && len(addresses) < mostSkipped; {
		f, taken := unwind.DecodeFrames(rest)
		if !f.Kernel {
			break
		}
		rest = rest[taken:]
		addresses, rests = append(addresses, f.Offset), append(rests, rest)
	}
	return rests[t.options.Skip(addresses)]
}

// meet gives the places of the first frame of some words.
func (d *drainer) meet(t *Table, b *profile.Builder, key unwind.FrameKey, words []uint64, pid uint32) span {
	places, ok := d.frames[key]
	if !ok {
		places.from = uint32(len(d.places))
		f, _ := unwind.DecodeFrames(words)
		d.find(t, b, f, pid)
		places.to = uint32(len(d.places))
		d.frames[key] = places
	}
	return places
}

// find adds what a frame points at to the places.
func (d *drainer) find(t *Table, b *profile.Builder, f unwind.Frame, pid uint32) {
	if f.Language == 0 {
		d.places = append(d.places, d.location(t, b, f, pid))
		return
	}
	for _, frame := range t.options.Named(int(pid), f) {
		d.places = append(d.places, b.Named(frame))
	}
}

// location finds what a frame of code points at.
func (d *drainer) location(t *Table, b *profile.Builder, f unwind.Frame, pid uint32) profile.LocationID {
	switch {
	case f.Kernel && t.options.Kernel != nil:
		return b.Location(t.options.Kernel(f.Offset))
	case f.Kernel:
		return b.Location(profile.Location{Kind: profile.KindKernel, BuildID: "kernel", Offset: f.Offset})
	case f.Executable != 0:
		return b.Location(profile.Location{Kind: profile.KindNative, BuildID: d.file(t, f.Executable).BuildID, Offset: f.Offset})
	case f.Unmapped:
		return b.Location(profile.Location{Name: "[unknown code]"})
	case t.options.Anonymous != nil:
		l, names := t.options.Anonymous(int(pid), f.Offset)
		return b.Location(l, names...)
	}
	return b.Location(profile.Location{Kind: profile.KindJIT, Name: "[code without a file]"})
}

func (d *drainer) file(t *Table, id uint32) unwind.File {
	if f, ok := d.files[id]; ok {
		return f
	}
	f, ok := t.options.Unwinder.File(id)
	if !ok {
		f.BuildID = fmt.Sprintf("executable-%d", id) // forgotten since: unloaded for want of room
	} else if t.options.OnFile != nil {
		t.options.OnFile(f)
	}
	d.files[id] = f
	return f
}

// TimedSample is one sample beside its row.
type TimedSample struct {
	Time                   uint64 // CLOCK_MONOTONIC
	UserStack, KernelStack uint64 // hashes
	Weight, Delta          int64
	Tgid, Tid              uint32
	CPU                    int
}

func (d *drainer) addSample(t *Table, b *profile.Builder, arena *kernelArena, threads map[ThreadID]profile.ThreadID,
	start uint64, s TimedSample) {
	stack, _ := d.stack(t, b, arena, stackPair{s.UserStack, s.KernelStack, s.Tgid})
	b.AddSample(profile.Sample{Time: time.Duration(s.Time - start), CPU: s.CPU, Stack: stack,
		Thread: d.thread(t, b, threads, s.Tgid, s.Tid), Weight: s.Weight, Delta: s.Delta})
}
