package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"atys.dev/atys/internal/profile"
)

// The files of a recording. The head is written last: where there is none, the recording did not end.
const (
	headFile    = "head.json"
	truthFile   = "truth.jsonl"
	samplesFile = "samples.bin"
)

// head is what is known of a recording beside its samples.
type head struct {
	Workload string
	Kernel   string // bpf, or a tool's
	Seed     uint64
	Hertz    float64
	Window   time.Duration
	Schedule string
	Machine  string
	Threads  int      // that the workload had, at most
	Self     []string // names of the functions that samples point to
	Samples  int64
	Losses   map[string]int64 // samples that are missing or incomplete, by reason
}

// sample is all that replaying needs of one:
//
//	bits 63..40  when, us after the window's start
//	     39..32  which of the workload's functions it is in, plus one; 0: in none
//	     31..16  the function that was running itself, a place in head.Self
//	     15..0   its weight, in weightUnits of the period
//
// Samples at 10,000 Hz of two CPUs for half an hour are 36 million.
type sample uint64

const (
	sampleBytes = 8
	weightUnit  = 1024             // of these make a period
	longestCut  = 16 * time.Second // 24 bits of microseconds
)

func newSample(at time.Duration, hot, self int, weight float64) sample {
	return sample(at.Microseconds())<<40 | sample(hot)<<32 | sample(self)<<16 | sample(min(max(weight*weightUnit+0.5, 1), 1<<16-1))
}

func (s sample) at() time.Duration { return time.Duration(s>>40) * time.Microsecond }
func (s sample) hot() int          { return int(s >> 32 & 0xff) }
func (s sample) self() int         { return int(s >> 16 & 0xffff) }
func (s sample) weight() float64   { return float64(s&0xffff) / weightUnit }

// packer writes the samples of profiles into windows of the clock:
//
//	window  start  unix ns, 8 bytes, little endian like all here
//	        n      8 bytes
//	        n samples, 8 bytes each
type packer struct {
	head      head
	functions []hot
	out       *bufio.Writer
	file      *os.File
	first     int64 // the first whole window
	next      int64 // the one that is written next; all by their start over their length
	open      map[int64][]sample
	self      map[string]int
}

// newPacker begins the file of samples; windows that have begun before from are left out.
func newPacker(dir string, h head, functions []hot, from time.Time) (*packer, error) {
	file, err := os.Create(filepath.Join(dir, samplesFile))
	if err != nil {
		return nil, err
	}
	first := from.UnixNano()/int64(h.Window) + 1
	h.Losses = map[string]int64{}
	return &packer{head: h, functions: functions, out: bufio.NewWriterSize(file, 1<<20), file: file, first: first, next: first,
		open: map[int64][]sample{}, self: map[string]int{}}, nil
}

// place is where a stack's samples belong.
type place struct{ hot, self int }

// add takes a profile, and writes the windows that have ended in it. Samples of known
// times lie in the window of their time; rows of others in the one that the profile is
// most of.
func (p *packer) add(w *profile.Window) error {
	places := make([]place, len(w.Stacks))
	for i := range w.Stacks {
		places[i] = p.place(w, &w.Stacks[i])
	}
	if len(w.Samples) > 0 {
		p.addSamples(w, places)
	} else {
		p.addRows(w, places)
	}
	for _, l := range w.Losses {
		if l.Reason.OfSamples() {
			p.head.Losses[string(l.Reason)] += l.N
		}
	}
	p.head.Threads = max(p.head.Threads, len(w.Threads))
	return p.write(w.Start.Add(w.Duration).UnixNano() / int64(p.head.Window))
}

func (p *packer) addSamples(w *profile.Window, places []place) {
	start, length, period := w.Start.UnixNano(), int64(p.head.Window), float64(time.Second)/p.head.Hertz
	for _, s := range w.Samples {
		at := start + s.Time.Nanoseconds()
		in := places[s.Stack]
		p.open[at/length] = append(p.open[at/length], newSample(time.Duration(at%length), in.hot, in.self, float64(s.Weight)/period))
	}
}

func (p *packer) addRows(w *profile.Window, places []place) {
	middle := w.Start.Add(w.Duration / 2).UnixNano()
	at := middle / int64(p.head.Window)
	for _, r := range w.Rows.All() {
		for range r.N {
			p.open[at] = append(p.open[at], newSample(0, places[r.Stack].hot, places[r.Stack].self, 1))
		}
	}
}

// place finds the workload's function on a stack, and what runs on top.
func (p *packer) place(w *profile.Window, s *profile.Stack) (in place) {
	for i, l := range s.Locations {
		frames := w.Frames(l)
		if i == 0 {
			in.self = p.number(frames[0].Function)
		}
		for j := range frames {
			for k, h := range p.functions {
				if h.is(&frames[j]) {
					in.hot = k + 1
					return in
				}
			}
		}
	}
	return in
}

// mostFunctions is how many numbers there are for functions.
const mostFunctions = 1 << 16

// number gives functions numbers as they come; those for which there is none left share the last.
func (p *packer) number(function string) int {
	if n, ok := p.self[function]; ok {
		return n
	}
	n := len(p.head.Self)
	if n == mostFunctions {
		return n - 1
	}
	if n == mostFunctions-1 {
		function = "[others]"
	}
	p.head.Self = append(p.head.Self, function)
	p.self[function] = n
	return n
}

// write writes all windows before one.
func (p *packer) write(before int64) error {
	for ; p.next < before; p.next++ {
		samples := p.open[p.next]
		buffer := make([]byte, 0, 2*8+sampleBytes*len(samples))
		buffer = binary.LittleEndian.AppendUint64(buffer, uint64(p.next*int64(p.head.Window)))
		buffer = binary.LittleEndian.AppendUint64(buffer, uint64(len(samples)))
		for _, s := range samples {
			buffer = binary.LittleEndian.AppendUint64(buffer, uint64(s))
		}
		p.head.Samples += int64(len(samples))
		if _, err := p.out.Write(buffer); err != nil {
			return err
		}
	}
	for at := range p.open {
		if at < p.next { // written, or from before the first
			delete(p.open, at)
		}
	}
	return nil
}

// finish completes the recording.
func (p *packer) finish(dir string, log []byte) error {
	if p.head.Samples == 0 {
		return errors.Join(errors.New("no whole window was recorded"), p.file.Close())
	}
	if err := errors.Join(p.out.Flush(), p.file.Close()); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, truthFile), log, 0o644); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p.head, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, headFile), append(text, '\n'), 0o644)
}

// recording is one that is read again.
type recording struct {
	head
	dir      string
	workload workload
	truth    truth
}

// open reads all of a recording but its samples.
func open(dir string) (*recording, error) {
	r := &recording{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, headFile))
	if err != nil {
		return nil, fmt.Errorf("open recording (which ends with its head): %w", err)
	}
	if err := json.Unmarshal(text, &r.head); err != nil {
		return nil, fmt.Errorf("open recording %q: %w", dir, err)
	}
	if r.workload, err = findWorkload(r.Workload); err != nil {
		return nil, err
	}
	log, err := os.Open(filepath.Join(dir, truthFile))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r.truth, err = readTruth(log, r.workload.hot)
	return r, err
}

// each hands over one window after the other; the samples are the caller's until it returns.
func (r *recording) each(take func(start int64, samples []sample) error) error {
	file, err := os.Open(filepath.Join(r.dir, samplesFile))
	if err != nil {
		return err
	}
	defer file.Close()
	return readWindows(bufio.NewReaderSize(file, 1<<20), take)
}

// mostSamples bounds a window: 16 s of 1,000 CPUs at 20,000 Hz.
const mostSamples = 320_000_000

func readWindows(in io.Reader, take func(start int64, samples []sample) error) error {
	var samples []sample
	var prefix [16]byte
	for {
		if _, err := io.ReadFull(in, prefix[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read window: %w", err)
		}
		start, n := int64(binary.LittleEndian.Uint64(prefix[:])), binary.LittleEndian.Uint64(prefix[8:])
		if n > mostSamples {
			return fmt.Errorf("read window: %d samples", n)
		}
		samples = samples[:0]
		var one [sampleBytes]byte
		for range n {
			if _, err := io.ReadFull(in, one[:]); err != nil {
				return fmt.Errorf("read samples: %w", err)
			}
			samples = append(samples, sample(binary.LittleEndian.Uint64(one[:])))
		}
		if err := take(start, samples); err != nil {
			return err
		}
	}
}
