package unwind

import (
	"reflect"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang/hotspot"
)

// TestHotspotParameters compares what package hotspot writes with what walks
// read: name by name, since fields of one size could change places.
func TestHotspotParameters(t *testing.T) {
	ours, theirs := reflect.TypeFor[hotspot.Parameters](), reflect.TypeFor[kernelHotspotProcess]()
	if ours.Size() != theirs.Size() {
		t.Errorf("hotspot.Parameters has %d bytes, struct hotspot_process %d", ours.Size(), theirs.Size())
	}
	compared := 0
	for i := range theirs.NumField() {
		f := theirs.Field(i)
		if f.Name == "_" || f.Name == "Unused" || f.Name == "Unused2" {
			continue
		}
		mine, ok := ours.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, f.Name) })
		if !ok {
			t.Errorf("hotspot.Parameters lacks %s", f.Name)
			continue
		}
		if mine.Offset != f.Offset || mine.Type.Size() != f.Type.Size() {
			t.Errorf("%s is %d bytes at %d, in struct hotspot_process %d at %d", mine.Name, mine.Type.Size(), mine.Offset, f.Type.Size(), f.Offset)
		}
		compared++
	}
	if compared < 25 {
		t.Errorf("only %d fields were compared", compared)
	}
}
