package spec

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ParseKept reads a profile that a program of another version may have kept or sent.
// Fields that this version does not know are left out, and named: what a person has
// just written is read by ParseJSON or Parse, which refuse them.
func ParseKept(data []byte) (p *Profile, unknown []string, err error) {
	known, unknown := without(data, "", reflect.TypeFor[document]())
	if len(unknown) == 0 {
		known = data // as it was written: an error quotes it
	}
	p, err = ParseJSON(known)
	return p, unknown, err
}

// without leaves out the fields of an object that a type does not have, and names
// them. What is no object is left as it is.
func without(data []byte, path string, of reflect.Type) (known []byte, unknown []string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || fields == nil {
		return data, nil
	}
	types := fieldTypes(of)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		inner, has := types[strings.ToLower(name)] // as package json matches them
		if !has {
			delete(fields, name)
			unknown = append(unknown, path+name)
			continue
		}
		if inner == nil {
			continue
		}
		var below []string
		fields[name], below = without(fields[name], path+name+".", inner)
		unknown = append(unknown, below...)
	}
	known, err := json.Marshal(fields)
	if err != nil {
		return data, nil
	}
	return known, unknown
}

// fieldTypes are the fields of a struct by their names in JSON, and the types of those
// that are objects themselves; nil: they are not.
func fieldTypes(of reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		var inner reflect.Type
		switch field.Type {
		case reflect.TypeFor[*frequency]():
			inner = reflect.TypeFor[spread]()
		case reflect.TypeFor[*prometheus]():
			inner = reflect.TypeFor[prometheus]()
		}
		all[strings.ToLower(name)] = inner
	}
	return all
}
