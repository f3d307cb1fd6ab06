package unwind

import (
	"log/slog"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/bpf"
)

// Flags of unwind.h.
const (
	executableLoaded        = 1
	executableFramePointers = 2
	executableEvicted       = 4
	executableNoRoom        = 8
)

// directory is where walks find executables by number, and their tables. What a number
// stands for is complete before one store publishes it.
type directory struct {
	log    *slog.Logger
	memory *bpf.Mapped[kernelExecutables]
	files  *ebpf.Map // the numbers of files
}

func (d directory) entry(e *executable) *kernelExecutable { return &d.memory.Value.E[e.id] }

// register makes an executable known by its number, without a table.
func (d directory) register(e *executable) {
	k := d.entry(e)
	*k = kernelExecutable{Generation: k.Generation + 1, Identity: e.identity << idBits}
	if err := d.files.Update(e.file.key(), e.id, ebpf.UpdateAny); err != nil {
		d.log.Debug("no room for a file", "path", e.path, "error", err)
	}
}

func (d directory) forget(e *executable) {
	if err := d.files.Delete(e.file.key()); err != nil && !isNotExist(err) {
		d.log.Debug("forget file", "path", e.path, "error", err)
	}
}

// expose publishes where an executable's cells are.
func (d directory) expose(e *executable, cell, cells, flags uint32) {
	d.withdraw(e, 0)
	k := d.entry(e)
	k.Cell, k.Cells = cell, cells
	atomic.StoreUint32(&k.Flags, executableLoaded|flags) // orders all stores above
}

// withdraw has walks not look at an executable's cells any more, and say why.
func (d directory) withdraw(e *executable, why uint32) {
	k := d.entry(e)
	atomic.StoreUint32(&k.Flags, why)
	atomic.AddUint32(&k.Generation, 1)
	d.answer(e)
}

// refuse has walks say that there is no room for an executable's table.
func (d directory) refuse(e *executable) {
	k := d.entry(e)
	atomic.StoreUint32(&k.Flags, atomic.LoadUint32(&k.Flags)&^executableEvicted|executableNoRoom)
}

// missed returns how many walks wanted an executable's table since the last answer.
func (d directory) missed(e *executable) uint32 { return atomic.LoadUint32(&d.entry(e).Wanted) }

// answer has walks ask again for an executable's table.
func (d directory) answer(e *executable) { atomic.StoreUint32(&d.entry(e).Wanted, 0) }
