package unwind

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/bpf"
)

// sharedMaps are the maps of unwind.h, and the program that notes each exec.
type sharedMaps struct {
	OnExec      *ebpf.Program `ebpf:"on_exec"`
	Mappings    *ebpf.Map     `ebpf:"mappings"`
	Executables *ebpf.Map     `ebpf:"executables"`
	Rows        *ebpf.Map     `ebpf:"rows"`
	Cells       *ebpf.Map     `ebpf:"cells"`
	Processes   *ebpf.Map     `ebpf:"processes"`
	Requests    *ebpf.Map     `ebpf:"requests"`
	Asked       *ebpf.Map     `ebpf:"asked"`
	Files       *ebpf.Map     `ebpf:"files"`
	Execs       *ebpf.Map     `ebpf:"execs"`

	Photographs  *ebpf.Map `ebpf:"photographs"`
	Photographed *ebpf.Map `ebpf:"photographed"`
}

func (m *sharedMaps) close() (err error) {
	err = m.OnExec.Close()
	for _, one := range []*ebpf.Map{m.Mappings, m.Executables, m.Rows, m.Cells, m.Processes, m.Requests, m.Asked, m.Files, m.Execs,
		m.Photographs, m.Photographed} {
		err = errors.Join(err, one.Close())
	}
	return err
}

// memory is the kernel's tables, mapped.
type memory struct {
	mappings    *bpf.Mapped[kernelMappings]
	executables *bpf.Mapped[kernelExecutables]
	rows        *bpf.MappedSlice[uint64]
	cells       *bpf.MappedSlice[uint64]
}

func (m *memory) close() error {
	return errors.Join(m.mappings.Close(), m.executables.Close(), m.rows.Close(), m.cells.Close())
}

// roomFor rounds a wanted number of rows to one that can be had.
func roomFor(rows uint32) uint32 {
	if rows == 0 {
		return DefaultRows
	}
	return 1 << bits.Len32(min(max(rows, minRows), MaxRows)-1)
}

// fit gives the rows map of a program its size.
func fit(spec *ebpf.CollectionSpec, room uint32) error {
	rows := spec.Maps["rows"]
	rows.ValueSize, rows.Value = 8*room, nil
	if err := spec.Variables["rows_mask"].Set(room - 1); err != nil {
		return fmt.Errorf("size the table of rows: %w", err)
	}
	return nil
}

func (m *memory) open(maps *sharedMaps) (err error) {
	if m.mappings, err = bpf.Map[kernelMappings](maps.Mappings); err != nil {
		return err
	}
	if m.executables, err = bpf.Map[kernelExecutables](maps.Executables); err != nil {
		return err
	}
	if m.rows, err = bpf.MapSlice[uint64](maps.Rows); err != nil {
		return err
	}
	m.cells, err = bpf.MapSlice[uint64](maps.Cells)
	return err
}
