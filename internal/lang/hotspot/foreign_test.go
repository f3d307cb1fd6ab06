package hotspot

import (
	"maps"
	"slices"
	"testing"
)

// foreign is a JVM of some version whose tables say something else.
type foreign struct {
	tables tables
	layout layout // with the places that are not told by tables
	images []*image
}

func newForeign(t testing.TB, version string) foreign {
	if _, ok := barrierAt[version]; !ok {
		l := recordedLayout(t, version)
		return foreign{recordedTables(t, version), l, []*image{newImage(l)}}
	}
	p, all, i := newVirtual(t, version, recordedStubs(t, version))
	return foreign{all, p.l, []*image{i, newImage(p.l)}}
}

// read reads memory by tables, as far as they make a layout.
func (f foreign) read(t testing.TB, changed tables, i *image, pc uint32) {
	l, err := newLayout(changed)
	if err != nil {
		return
	}
	l.Heaps, l.Interpreter = f.layout.Heaps, f.layout.Interpreter
	p := newProcess(memory{i}, l)
	if l.biased {
		_ = p.readVirtualThreads(changed) // an error, but no harm
	}
	checkNames(t, p, pc)
}

// names are what tables tell, in an order that stays.
func (t tables) names() []string {
	return slices.Concat(slices.Sorted(maps.Keys(t.fields)), slices.Sorted(maps.Keys(t.sizes)), slices.Sorted(maps.Keys(t.ints)))
}

// with gives tables that tell something else of a name.
func (t tables) with(name string, value uint16) tables {
	changed := tables{maps.Clone(t.fields), maps.Clone(t.sizes), maps.Clone(t.ints)}
	if f, ok := t.fields[name]; ok {
		f.at = uint64(value)
		changed.fields[name] = f
	} else if _, ok := t.sizes[name]; ok {
		changed.sizes[name] = uint64(value)
	} else {
		changed.ints[name] = int64(value)
	}
	return changed
}

// TestForeignTables has every word of the tables be too small or too large.
func TestForeignTables(t *testing.T) {
	for _, version := range []string{"8", "11.0.13", "17.0.15", "21.0.8", "25.0.2", "25.0.3"} {
		t.Run(version, func(t *testing.T) {
			f := newForeign(t, version)
			for _, name := range f.tables.names() {
				for _, value := range []uint16{0, 1, 2, 3, 5, 7, 8, 15, 40, 120, 127, 135, 300, 1000, 4000, 4088, 4095} {
					for _, i := range f.images {
						f.read(t, f.tables.with(name, value), i, 0x40)
					}
				}
			}
		})
	}
}

// FuzzLayout has some words of the tables, and all memory, be anything.
func FuzzLayout(f *testing.F) {
	var versions []foreign
	for n, version := range []string{"8", "11.0.13", "17.0.15", "21.0.8", "25.0.2"} {
		one := newForeign(f, version)
		versions = append(versions, one)
		used := slices.Index(one.tables.names(), "HeapBlock::Header._used")
		for _, i := range one.images {
			f.Add(i.data, uint8(n), []byte(nil), uint32(0x40))
			f.Add(i.data, uint8(n), []byte{byte(used), 0xa0, 0x0f}, uint32(0x40))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, version uint8, changes []byte, pc uint32) {
		one := versions[int(version)%len(versions)]
		names, changed := one.tables.names(), one.tables
		for ; len(changes) >= 3; changes = changes[3:] {
			changed = changed.with(names[int(changes[0])%len(names)], le.Uint16(changes[1:]))
		}
		one.read(t, changed, &image{0x10000, data}, pc)
	})
}
