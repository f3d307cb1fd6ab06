package gopclntab
import ("testing";"io";"atys.dev/atys/internal/binfile")
func BenchmarkNoCache(b *testing.B) {
	table := openTable(b, "/proc/self/exe")
	f, _ := binfile.Open("/proc/self/exe")
	off := int64(f.Section(".gopclntab").Offset)
	table.r = io.NewSectionReader(f, off, table.size)
	start, end := table.Range()
	pc := start
	for b.Loop() {
		table.Lookup(pc)
		if pc += 4099; pc >= end { pc = start }
	}
}
