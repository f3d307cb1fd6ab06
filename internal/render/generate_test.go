package render

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// generator makes windows that look like those of real programs: call trees
// whose weights follow a power law, with kernel frames at the leaves, inlined
// calls, and several languages in one stack.
type generator struct {
	rand *rand.Rand
	b    *profile.Builder
}

func testHead(samples int64) profile.Head {
	return profile.Head{
		Task:     "cpu",
		Target:   profile.Labels{"service": "orders", "host": "db-1"},
		Start:    time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC),
		Duration: 30 * time.Second,
		Types:    []profile.ValueType{profile.CPUTime(1_001_001)},
		Design:   profile.DesignRandomised,
		Exact: profile.Exact{CPU: time.Duration(samples) * 1_004_000, User: time.Duration(samples) * 771_000,
			System: time.Duration(samples) * 233_000, Source: "schedstat"},
		Losses: []profile.Loss{
			{Reason: profile.LossTruncated, Detail: "unreadable stack", N: samples / 80},
			{Reason: profile.LossUnsymbolized, N: samples / 5000},
		},
	}
}

func newGenerator(seed uint64, samples int64) *generator {
	return &generator{rand: rand.New(rand.NewPCG(seed, 7)), b: profile.NewBuilder(testHead(samples))}
}

// family is a vocabulary of function names of one kind of code.
type family struct {
	kind    profile.Kind
	class   profile.Class
	mapping string
	dir     string
	ext     string
	names   []string
	next    []int // families it calls, by index
}

func families() []family {
	return []family{
		{profile.KindNative, profile.ClassApplication, "/usr/lib/postgresql/16/bin/postgres", "src/backend/executor/", ".c",
			[]string{"PostgresMain", "exec_simple_query", "PortalRun", "PortalRunSelect", "standard_ExecutorRun", "ExecutePlan", "ExecProcNode", "ExecScan",
				"ExecHashJoin", "ExecSort", "ExecModifyTable", "heap_getnextslot", "heapgettup_pagemode", "index_getnext_slot", "btgettuple", "_bt_search",
				"_bt_moveright", "ReadBufferExtended", "LockBuffer", "XLogInsert", "LWLockAcquire", "hash_search_with_hash_value", "AllocSetAlloc", "tuplesort_performsort"}, []int{0, 0, 0, 1, 2}},
		{profile.KindNative, profile.ClassLibrary, "/usr/lib/x86_64-linux-gnu/libc.so.6", "string/", ".S",
			[]string{"__memmove_avx_unaligned_erms", "malloc", "_int_malloc", "_int_free", "__libc_recv", "epoll_wait", "pthread_mutex_lock", "strcoll_l", "qsort_r"}, []int{1, 2}},
		{profile.KindKernel, profile.ClassKernel, "[kernel]", "", "",
			[]string{"do_syscall_64", "__x64_sys_recvfrom", "tcp_recvmsg", "schedule", "__x64_sys_epoll_wait", "ep_poll", "vfs_read", "ext4_file_read_iter", "filemap_read",
				"copy_page_to_iter", "asm_exc_page_fault", "handle_mm_fault", "clear_page_erms", "tcp_sendmsg_locked", "ip_queue_xmit", "__softirqentry_text_start", "net_rx_action"}, []int{2}},
		{profile.KindPython, profile.ClassApplication, "/srv/orders/app.py", "/srv/orders/", ".py",
			[]string{"handle_request", "Engine.execute", "Query.all", "serialize", "<listcomp>", "JSONEncoder.encode", "render_template", "Cursor.fetchall"}, []int{3, 3, 4, 1}},
		{profile.KindNative, profile.ClassRuntime, "/usr/bin/python3.12", "Python/", ".c",
			[]string{"_PyEval_EvalFrameDefault", "PyObject_Vectorcall", "dict_lookup", "gc_collect_main", "PyUnicode_Format", "_PyObject_Malloc"}, []int{4, 1, 2}},
		{profile.KindJavaCompiled, profile.ClassApplication, "orders.jar", "com/example/orders/", ".java",
			[]string{"com.example.orders.OrderService.place", "com.example.orders.Cart.total", "java.util.HashMap.getNode", "java.util.stream.ReferencePipeline.collect",
				"com.fasterxml.jackson.databind.ObjectMapper.writeValueAsBytes", "io.netty.channel.nio.NioEventLoop.run"}, []int{5, 5, 6, 1, 2}},
		{profile.KindJavaInterpreted, profile.ClassApplication, "orders.jar", "com/example/orders/", ".java",
			[]string{"com.example.orders.Startup.init", "java.lang.Class.forName", "org.springframework.beans.factory.support.DefaultListableBeanFactory.getBean"}, []int{5, 6, 1}},
		{profile.KindNative, profile.ClassApplication, "/usr/local/bin/gateway", "/src/gateway/", ".go",
			[]string{"net/http.(*conn).serve", "net/http.serverHandler.ServeHTTP", "github.com/example/gateway/router.(*Mux).ServeHTTP", "encoding/json.(*decodeState).object",
				"runtime.mallocgc", "runtime.gcBgMarkWorker", "runtime.scanobject", "crypto/tls.(*Conn).Read", "internal/poll.(*FD).Read"}, []int{7, 7, 7, 2}},
		{profile.KindNative, profile.ClassApplication, "/opt/search/indexer", "/src/search/", ".cc",
			[]string{"search::Indexer::AddDocument(search::Document const&)", "std::vector<std::pair<unsigned int, float>, std::allocator<std::pair<unsigned int, float>>>::_M_realloc_insert",
				"search::Tokenizer::Next()", "absl::container_internal::raw_hash_set<absl::FlatHashMapPolicy<std::string, int>>::find_or_prepare_insert",
				"std::__introsort_loop<unsigned int*, long, __gnu_cxx::__ops::_Iter_less_iter>", "operator new(unsigned long)", "search::Postings::Merge(search::Postings&&)"}, []int{8, 8, 1}},
	}
}

// spread grows stacks under path until samples are used up, leaf first in the
// builder. breadth says how many different callees one function has.
func (g *generator) spread(fs []family, path []profile.LocationID, at int, thread profile.ThreadID, samples, depth int) {
	if depth == 0 || samples < 2 || g.rand.IntN(14) == 0 {
		g.add(path, thread, samples)
		return
	}
	self := samples * g.rand.IntN(12) / 100
	if self > 0 {
		g.add(path, thread, self)
		samples -= self
	}
	for samples > 0 {
		part := max(1, int(float64(samples)*math.Pow(g.rand.Float64(), 1.3)))
		f := fs[at].next[g.rand.IntN(len(fs[at].next))]
		g.spread(fs, append(path[:len(path):len(path)], g.function(fs[f])), f, thread, part, depth-1)
		samples -= part
	}
}

func (g *generator) function(f family) profile.LocationID {
	i := g.rand.IntN(len(f.names))
	frame := profile.Frame{Function: f.names[i], Mapping: f.mapping, Kind: f.kind, Class: f.class, StartLine: 40 + 90*i}
	if f.ext != "" {
		frame.File = fmt.Sprintf("%sfile%d%s", f.dir, i/3, f.ext)
		frame.Line = frame.StartLine + g.rand.IntN(3)*7
	}
	if f.kind == profile.KindNative && g.rand.IntN(9) == 0 {
		inlined := frame
		inlined.Function, inlined.Inlined, inlined.Line = "inline_"+f.names[(i+1)%len(f.names)], true, frame.Line+1
		return g.b.Location(profile.Location{Kind: f.kind, BuildID: f.mapping, Offset: uint64(i*4096 + frame.Line*2 + 1)}, inlined, frame)
	}
	return g.b.Location(profile.Location{Kind: f.kind, BuildID: f.mapping, Offset: uint64(i*4096 + frame.Line*2)}, frame)
}

func (g *generator) add(path []profile.LocationID, thread profile.ThreadID, samples int) {
	leafFirst := make([]profile.LocationID, len(path))
	for i, l := range path {
		leafFirst[len(path)-1-i] = l
	}
	value, squares := int64(0), 0.0
	for range samples {
		w := 500_000 + g.rand.Int64N(1_000_000)
		value += w
		squares += float64(w) * float64(w)
	}
	g.b.Add(profile.Row{Stack: g.b.Stack(leafFirst, profile.EndComplete), Thread: thread, N: int64(samples), Values: []int64{value}, Squares: []float64{squares}})
}

// realistic is a machine with a database, a Python and a Java service, a Go gateway and an indexer.
func realistic(seed uint64, samples, depth int) *profile.Window {
	g := newGenerator(seed, int64(samples))
	fs := families()
	roots := []struct {
		process, thread string
		family          int
		share           int
		root            string
	}{
		{"postgres", "postgres", 0, 38, "_start"}, {"gunicorn", "worker-1", 3, 12, "<module>"}, {"gunicorn", "worker-2", 3, 9, "<module>"},
		{"java", "http-exec-1", 5, 11, "java.lang.Thread.run"}, {"java", "http-exec-2", 5, 6, "java.lang.Thread.run"}, {"java", "C2 CompilerThre", 1, 3, "__clone3"},
		{"gateway", "gateway", 7, 12, "runtime.goexit"}, {"indexer", "indexer", 8, 9, "_start"},
	}
	for i, r := range roots {
		thread := g.b.Thread(profile.Thread{PID: 1000 + i, TID: 1000 + i, Process: r.process, Name: r.thread})
		f := fs[r.family]
		root := g.b.Named(profile.Frame{Function: r.root, Kind: f.kind, Mapping: f.mapping, Class: profile.ClassRuntime})
		g.spread(fs, []profile.LocationID{root}, r.family, thread, samples*r.share/100, depth)
	}
	return g.b.Window()
}

func treeOf(t testing.TB, o profile.TreeOptions, windows ...*profile.Window) *profile.Tree {
	t.Helper()
	tree, err := profile.NewTree(o, windows...)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// large is a tree of at least n nodes.
func large(t testing.TB, n int) *profile.Tree {
	t.Helper()
	for samples := n / 2; ; samples += samples / 2 {
		tree := treeOf(t, profile.TreeOptions{Process: true, Thread: true}, realistic(3, samples, 40))
		nodes := 0
		tree.Walk(func(*profile.Node, int) { nodes++ })
		if nodes >= n {
			return tree
		}
	}
}

// deep is one stack of the given number of frames, and a short one beside it.
func deep(t testing.TB, frames int) *profile.Tree {
	g := newGenerator(1, 500)
	var path []profile.LocationID
	for i := range frames {
		path = append(path, g.b.Named(profile.Frame{Function: fmt.Sprintf("descend_%d", i), Kind: profile.KindNative, File: "deep.c", Line: i + 1}))
	}
	g.add(path, 0, 400)
	g.add(path[:3], 0, 100)
	return treeOf(t, profile.TreeOptions{}, g.b.Window())
}

// changed is a window of the same program after a change: some stacks got
// heavier or lighter, all were sampled anew.
func changed(w *profile.Window, seed uint64) *profile.Window {
	r := rand.New(rand.NewPCG(seed, 11))
	factors := map[string]float64{"ExecSort": 1.7, "heapgettup_pagemode": 0.5, "serialize": 0.35, "tcp_recvmsg": 1.5, "runtime.mallocgc": 2}
	out := *w
	out.Rows = profile.RowsOf(1)
	for _, row := range w.Rows.All() {
		factor := 1.2
		for _, l := range w.Stacks[row.Stack].Locations {
			for _, f := range w.Frames(l) {
				if g, ok := factors[f.Function]; ok {
					factor *= g
				}
			}
		}
		mean := float64(row.N) * factor
		n := max(0, int64(math.Round(mean+r.NormFloat64()*math.Sqrt(mean))))
		if n > 0 {
			value := n * row.Values[0] / row.N
			row.N, row.Values, row.Squares = n, []int64{value}, []float64{profile.Alike(n, value) * 1.083}
			out.Rows.Append(row)
		}
	}
	return &out
}
