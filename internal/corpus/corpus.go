// Package corpus holds real files of the kinds atys reads, for the tests of every package that reads them.
//
// README.md tells where each file is from and the command that made it.
package corpus

import "embed"

//go:embed folded perf pprof
var files embed.FS

// Read gives one file, named by its path below this folder. It panics on a
// name that is not there: only tests call it, with names they know.
func Read(name string) []byte {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return data
}

// Names lists the files of one folder.
func Names(folder string) []string {
	entries, err := files.ReadDir(folder)
	if err != nil {
		panic(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, folder+"/"+e.Name())
	}
	return names
}
