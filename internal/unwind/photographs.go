package unwind

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"atys.dev/atys/internal/lang"
)

// photographs reads the ring of photographs.
type photographs struct {
	reader  *ringbuf.Reader
	tell    func(Language, lang.Photograph)
	flush   sync.Mutex // held until a flush is answered: two at once would have one answer
	flushed chan struct{}
}

func followPhotographs(ring *ebpf.Map, tell func(Language, lang.Photograph)) (*photographs, error) {
	reader, err := ringbuf.NewReader(ring)
	if err != nil {
		return nil, fmt.Errorf("read the walks' photographs: %w", err)
	}
	return &photographs{reader: reader, tell: tell, flushed: make(chan struct{}, 1)}, nil
}

// follow reads until the reader is closed.
func (p *photographs) follow() {
	defer close(p.flushed)
	var record ringbuf.Record
	for {
		err := p.reader.ReadInto(&record)
		switch {
		case errors.Is(err, ringbuf.ErrFlushed):
			p.flushed <- struct{}{}
		case err != nil:
			return
		default:
			if language, one, ok := parsePhotograph(record.RawSample); ok {
				p.tell(language, one)
			}
		}
	}
}

func parsePhotograph(raw []byte) (l Language, p lang.Photograph, ok bool) {
	var k kernelPhotograph
	if len(raw) < int(unsafe.Sizeof(k)) {
		return l, p, false
	}
	k = *(*kernelPhotograph)(unsafe.Pointer(&raw[0]))
	p = lang.Photograph{PID: int(k.Tgid), What: k.What, Values: k.Values, Lengths: k.Lengths, Bytes: k.Bytes[:]}
	return Language(k.Kind), p, true
}

// develop returns once all is told that was photographed up to now.
func (p *photographs) develop() {
	p.flush.Lock()
	defer p.flush.Unlock()
	if p.reader.Flush() != nil {
		return
	}
	<-p.flushed
}

// Develop has all that was photographed up to now be known to Name.
func (u *Unwinder) Develop() {
	if u.photographs != nil {
		u.photographs.develop()
	}
}
