package cpu

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
	used     map[threadID]profile.Thread
	names    map[int]string // of processes; nil: none was asked for
	unseen   map[int]bool   // processes of a cgroup that came and went: nobody heard what they used
}

// span is where the places of a frame are: as many as calls are inlined there.
type span struct{ from, to uint32 }

const (
	lately  = 1 << 12
	maxRows = 32768 // of a buffer; rows_map of cpu.bpf.c
)

// stackLost is STACK_LOST of cpu.bpf.c: in place of the hash of a stack that
// found no room.
const stackLost = 1

type stackPair struct {
	user, kernel uint64
	pid          uint32
}

// window empties a buffer that no program writes to any more.
func (d *drainer) window(s *Sampler, head profile.Head, start uint64, buffer uint32, used map[threadID]profile.Thread) (*profile.Window, error) {
	rows, stacks := s.objects.Rows0, s.objects.Stacks0
	if buffer == 1 {
		rows, stacks = s.objects.Rows1, s.objects.Stacks1
	}
	arena := s.arenas[buffer].Value
	if err := d.takeStacks(stacks); err != nil {
		return nil, err
	}
	b := profile.NewBuilder(head)
	d.forget()
	d.used, d.names, d.unseen = used, nil, map[int]bool{}
	threads := d.addThreads(s, b, used)
	err := drainMap(rows, &d.keys, &d.rows, func(k kernelRowKey, v kernelRowValue) {
		d.addRow(s, b, arena, threads, k, v)
	})
	if err != nil {
		return nil, fmt.Errorf("drain rows: %w", err)
	}
	if s.times != nil {
		d.addTimes(s, b, arena, threads, start, buffer)
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
func (d *drainer) addThreads(s *Sampler, b *profile.Builder, used map[threadID]profile.Thread) map[threadID]profile.ThreadID {
	ids := make(map[threadID]profile.ThreadID, len(used))
	for id, t := range used {
		b.Head().Exact.Add(t.Exact)
		if t.Process == "" {
			t.Process = d.process(s, id.pid)
		}
		if s.options.Threads {
			ids[id] = b.Thread(t)
		}
	}
	return ids
}

func (d *drainer) addRow(s *Sampler, b *profile.Builder, arena *kernelArena, threads map[threadID]profile.ThreadID,
	k kernelRowKey, v kernelRowValue) {
	stack, end := d.stack(s, b, arena, stackPair{k.UserStack, k.KernelStack, k.Tgid})
	row := profile.Row{Stack: stack, Thread: d.thread(s, b, threads, k.Tgid, k.Tid), Slot: k.Slot, N: int64(v.Samples),
		Values: []int64{int64(v.Weight)}, Squares: []float64{float64(v.Squares)}}
	if s.options.Event.Clock {
		row.Squares[0] *= 1 << 20 // the kernel keeps squares of 1024 ns
	}
	if s.options.Second != nil {
		row.Values = append(row.Values, int64(v.Delta))
	}
	b.Add(row)
	if s.options.Cgroup != "" && d.cameAndWent(s, int(k.Tgid)) {
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

func (d *drainer) thread(s *Sampler, b *profile.Builder, threads map[threadID]profile.ThreadID, tgid, tid uint32) profile.ThreadID {
	if tid == 0 {
		return 0
	}
	id := threadID{int(tgid), int(tid)}
	t, ok := threads[id]
	if !ok { // sampled, but its exact time is not known: it exited while its ring was full
		t = b.Thread(profile.Thread{PID: id.pid, TID: id.tid, Process: d.process(s, id.pid)})
		threads[id] = t
	}
	return t
}

// endedProcess is what a process is called that has ended before anybody heard what
// it was called: without a name its samples would be of a service without one.
const endedProcess = "[ended]"

// unseenDetail is why there is no exact time of some samples' processes.
const unseenDetail = "of processes that came and went unseen"

// heard gives what processes are called whose threads' times are known.
func (d *drainer) heard(s *Sampler) map[int]string {
	if d.names == nil {
		d.names = map[int]string{}
		for id, t := range s.exact.before {
			d.names[id.pid] = cmp.Or(d.names[id.pid], t.process)
		}
		for id, t := range d.used {
			d.names[id.pid] = cmp.Or(d.names[id.pid], t.Process)
		}
	}
	return d.names
}

// cameAndWent tells whether nobody heard what a process of a cgroup used.
func (d *drainer) cameAndWent(s *Sampler, pid int) bool {
	_, heard := d.heard(s)[pid]
	return d.unseen[pid] || !heard
}

// process names the process of a thread that we know nothing of.
func (d *drainer) process(s *Sampler, pid int) string {
	d.heard(s)
	if d.names[pid] == "" {
		d.names[pid] = endedProcess
		if stat, err := (proc.FS{}).Stat(pid); err == nil {
			d.names[pid] = stat.Comm
		}
	}
	return d.names[pid]
}

// stack joins a kernel and a user stack, leaf first.
func (d *drainer) stack(s *Sampler, b *profile.Builder, arena *kernelArena, pair stackPair) (profile.StackID, profile.End) {
	if id, ok := d.combined[pair]; ok {
		return id, b.StackEnd(id)
	}
	d.buffer = d.buffer[:0]
	end := profile.EndNoUser
	lost := pair.kernel != 0 && d.appendFrames(s, b, arena, pair.kernel, pair.pid) == profile.EndLost
	if lost {
		d.buffer = append(d.buffer, b.Location(profile.Location{Kind: profile.KindKernel, Name: "[kernel stack lost]"}))
	}
	if pair.user != 0 {
		end = d.appendFrames(s, b, arena, pair.user, pair.pid)
	}
	if lost || pair.user == 0 && pair.kernel == 0 {
		end = profile.EndLost
	}
	id := b.Stack(d.buffer, end)
	d.combined[pair] = id
	return id, end
}

func (d *drainer) appendFrames(s *Sampler, b *profile.Builder, arena *kernelArena, hash uint64, pid uint32) profile.End {
	at, ok := d.stacks[hash]
	if hash == stackLost || !ok || uint64(at) >= uint64(len(arena.Words)) {
		return profile.EndLost
	}
	head := arena.Words[at]
	n, end := uint32(head), profile.End(head>>32)
	if uint64(at)+1+uint64(n) > uint64(len(arena.Words)) {
		return profile.EndLost
	}
	for words := arena.Words[at+1 : at+1+n]; len(words) > 0; {
		key, taken := unwind.KeyOf(words, pid)
		met := &d.lately[key.Hash()%lately]
		if met.key != key {
			met.key, met.places = key, d.meet(s, b, key, words, pid)
		}
		d.buffer = append(d.buffer, d.places[met.places.from:met.places.to]...)
		words = words[taken:]
	}
	return end
}

// meet gives the places of the first frame of some words.
func (d *drainer) meet(s *Sampler, b *profile.Builder, key unwind.FrameKey, words []uint64, pid uint32) span {
	places, ok := d.frames[key]
	if !ok {
		places.from = uint32(len(d.places))
		f, _ := unwind.DecodeFrames(words)
		d.find(s, b, f, pid)
		places.to = uint32(len(d.places))
		d.frames[key] = places
	}
	return places
}

// find adds what a frame points at to the places.
func (d *drainer) find(s *Sampler, b *profile.Builder, f unwind.Frame, pid uint32) {
	if f.Language == 0 {
		d.places = append(d.places, d.location(s, b, f, pid))
		return
	}
	for _, frame := range s.options.Named(int(pid), f) {
		d.places = append(d.places, b.Named(frame))
	}
}

// location finds what a frame of code points at.
func (d *drainer) location(s *Sampler, b *profile.Builder, f unwind.Frame, pid uint32) profile.LocationID {
	switch {
	case f.Kernel && s.options.Kernel != nil:
		return b.Location(s.options.Kernel(f.Offset))
	case f.Kernel:
		return b.Location(profile.Location{Kind: profile.KindKernel, BuildID: "kernel", Offset: f.Offset})
	case f.Executable != 0:
		return b.Location(profile.Location{Kind: profile.KindNative, BuildID: d.file(s, f.Executable).BuildID, Offset: f.Offset})
	case f.Unmapped:
		return b.Location(profile.Location{Name: "[unknown code]"})
	case s.options.Anonymous != nil:
		l, names := s.options.Anonymous(int(pid), f.Offset)
		return b.Location(l, names...)
	}
	return b.Location(profile.Location{Kind: profile.KindJIT, Name: "[code without a file]"})
}

func (d *drainer) file(s *Sampler, id uint32) unwind.File {
	if f, ok := d.files[id]; ok {
		return f
	}
	f, ok := s.options.Unwinder.File(id)
	if !ok {
		f.BuildID = fmt.Sprintf("executable-%d", id) // forgotten since: unloaded for want of room
	} else if s.options.OnFile != nil {
		s.options.OnFile(f)
	}
	d.files[id] = f
	return f
}

// addTimes adds the timed samples of a buffer.
func (d *drainer) addTimes(s *Sampler, b *profile.Builder, arena *kernelArena, threads map[threadID]profile.ThreadID,
	start uint64, buffer uint32) {
	for _, t := range s.times.take(buffer) {
		stack, _ := d.stack(s, b, arena, stackPair{t.UserStack, t.KernelStack, t.Tgid})
		b.AddSample(profile.Sample{Time: time.Duration(t.Time - start), CPU: int(t.Cpu), Stack: stack,
			Thread: d.thread(s, b, threads, t.Tgid, t.Tid), Weight: int64(t.Weight), Delta: int64(t.Delta)})
	}
}
