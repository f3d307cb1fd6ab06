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

// entries are where walks find executables by number, and their tables. What a number
// stands for is complete before one store publishes it.
type entries struct {
	log    *slog.Logger
	memory *bpf.Mapped[kernelExecutables]
	files  *ebpf.Map // the numbers of files
}

func (x entries) entry(e *executable) *kernelExecutable { return &x.memory.Value.E[e.id] }

// register makes an executable known by its number, without a table.
func (x entries) register(e *executable) {
	k := x.entry(e)
	*k = kernelExecutable{Generation: k.Generation + 1, Identity: e.identity << idBits}
	if err := x.files.Update(e.file.key(), e.id, ebpf.UpdateAny); err != nil {
		x.log.Debug("no room for a file", "path", e.path, "error", err)
	}
}

func (x entries) forget(e *executable) {
	if err := x.files.Delete(e.file.key()); err != nil && !isNotExist(err) {
		x.log.Debug("forget file", "path", e.path, "error", err)
	}
}

// expose publishes where an executable's cells are.
func (x entries) expose(e *executable, cell, cells, flags uint32) {
	x.withdraw(e, 0)
	k := x.entry(e)
	k.Cell, k.Cells = cell, cells
	atomic.StoreUint32(&k.Flags, executableLoaded|flags) // orders all stores above
}

// withdraw has walks not look at an executable's cells any more, and say why.
func (x entries) withdraw(e *executable, why uint32) {
	k := x.entry(e)
	atomic.StoreUint32(&k.Flags, why)
	atomic.AddUint32(&k.Generation, 1)
	x.answer(e)
}

// refuse has walks say that there is no room for an executable's table.
func (x entries) refuse(e *executable) {
	k := x.entry(e)
	atomic.StoreUint32(&k.Flags, atomic.LoadUint32(&k.Flags)&^executableEvicted|executableNoRoom)
}

// missed returns how many walks wanted an executable's table since the last answer.
func (x entries) missed(e *executable) uint32 { return atomic.LoadUint32(&x.entry(e).Wanted) }

// answer has walks ask again for an executable's table.
func (x entries) answer(e *executable) { atomic.StoreUint32(&x.entry(e).Wanted, 0) }
