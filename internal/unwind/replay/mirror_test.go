package replay

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"atys.dev/atys/internal/lang/hotspot"
	"atys.dev/atys/internal/unwind"
)

// TestNoMirror gives frames of Java's interpreter the shape that they have in 8,
// where the bytecode pointer lies a word higher: the walk must say the same.
func TestNoMirror(t *testing.T) {
	m := machine(t)
	moved := 0
	images(t, func(t *testing.T, _ string, i *Image) {
		if len(i.Runtimes) == 0 || i.Runtimes[0].Language != unwind.Java {
			return
		}
		want := walked(t, m, i)
		old := i.changed(nil)
		n := old.leaveMirrorsOut(want, uint64(javaParameters(t, i.Runtimes[0].Parameters).MethodConstant))
		if moved += n; n == 0 {
			return
		}
		if got := walked(t, m, old); slices.Equal(got.Frames, want.Frames) {
			t.Error("frames of 8 are read as those of 9")
		}
		old.Runtimes = slices.Clone(old.Runtimes)
		old.Runtimes[0].Parameters = withoutMirror(t, old.Runtimes[0].Parameters)
		if got := walked(t, m, old); got.End != want.End || !slices.Equal(got.Frames, want.Frames) {
			t.Errorf("end %d, frames %+v\nwant %d, %+v", got.End, got.Frames, want.End, want.Frames)
		}
	})
	if moved == 0 {
		t.Error("no image has a frame of the interpreter")
	}
}

// leaveMirrorsOut moves the bytecode pointers of the frames of a walk, and
// counts them. Where a frame has its caller's is where its Method is.
func (i *Image) leaveMirrorsOut(w Walk, constant uint64) (moved int) {
	const address, place = 1<<48 - 1, 1<<20 - 1
	for _, f := range w.Frames {
		method := f.Offset & address
		of := i.at(method + constant)
		if of == nil || f.Where&place == 0 {
			continue
		}
		bytecode := binary.LittleEndian.Uint64(of) + f.Where&place
		for _, p := range i.Memory {
			for at := 0; at+8 <= len(p.Bytes); at += 8 {
				bp := p.Start + uint64(at) + 24
				if binary.LittleEndian.Uint64(p.Bytes[at:]) != method {
					continue
				}
				if from := i.at(bp - 64); from != nil && binary.LittleEndian.Uint64(from) == bytecode {
					i.put(bp-56, bytecode)
					i.put(bp-64, 0)
					moved++
				}
			}
		}
	}
	return moved
}

func javaParameters(t *testing.T, parameters []byte) (p hotspot.Parameters) {
	t.Helper()
	if err := binary.Read(bytes.NewReader(parameters), binary.LittleEndian, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func withoutMirror(t *testing.T, parameters []byte) []byte {
	t.Helper()
	p := javaParameters(t, parameters)
	p.NoMirror = 1
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, &p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
