package proc

import (
	"bytes"
	"fmt"
)

// Environ returns those of the named environment variables that a process was
// started with. Only what is asked for is kept: environments hold secrets.
func (f FS) Environ(pid int, names ...string) (values map[string]string, err error) {
	err = f.readPID(pid, "environ", func(data []byte) error {
		values = ParseEnviron(data, names...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read environment: %w", err)
	}
	return values, nil
}

// ParseEnviron finds variables in the bytes of an environ file: NAME=value,
// each ended by a NUL. Where a name stands twice, the first counts, as it does
// for getenv.
func ParseEnviron(data []byte, names ...string) map[string]string {
	values := map[string]string{}
	for len(data) > 0 {
		entry := data
		if i := bytes.IndexByte(data, 0); i >= 0 {
			entry, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		name, value, ok := bytes.Cut(entry, []byte{'='})
		if !ok {
			continue
		}
		for _, wanted := range names {
			if string(name) != wanted {
				continue
			}
			if _, twice := values[wanted]; !twice {
				values[wanted] = string(value)
			}
		}
	}
	return values
}
