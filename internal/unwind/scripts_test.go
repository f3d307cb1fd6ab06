package unwind

import (
	"reflect"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang/perl"
	"atys.dev/atys/internal/lang/php"
	"atys.dev/atys/internal/lang/ruby"
)

// TestScriptParameters asserts that what Go fills is what the headers read.
func TestScriptParameters(t *testing.T) {
	for header, types := range map[string][2]reflect.Type{
		"php.h":  {reflect.TypeFor[kernelPhpProcess](), reflect.TypeFor[php.Parameters]()},
		"ruby.h": {reflect.TypeFor[kernelRubyProcess](), reflect.TypeFor[ruby.Parameters]()},
		"perl.h": {reflect.TypeFor[kernelPerlProcess](), reflect.TypeFor[perl.Parameters]()},
	} {
		c, g := types[0], types[1]
		var fields []reflect.StructField
		for i := range c.NumField() {
			if f := c.Field(i); f.Name != "_" {
				fields = append(fields, f)
			}
		}
		if c.Size() != g.Size() || len(fields) != g.NumField() {
			t.Errorf("%s: %d fields of %d bytes, Go has %d of %d", header, len(fields), c.Size(), g.NumField(), g.Size())
			continue
		}
		for _, of := range fields {
			same, ok := g.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, of.Name) })
			if !ok || same.Offset != of.Offset || same.Type.Size() != of.Type.Size() {
				t.Errorf("%s has %s at %d with %d bytes, Go %+v", header, of.Name, of.Offset, of.Type.Size(), same)
			}
		}
	}
}
