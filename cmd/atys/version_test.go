package main

import (
	"runtime/debug"
	"testing"
)

func TestBuildOf(t *testing.T) {
	const commit, date = "a9d71aedb1c0ffee00000000000000000000000a", "2026-11-27T22:10:00Z"
	info := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: version}, Settings: settings}
	}
	clone := []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.time", Value: date}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		name  string
		info  *debug.BuildInfo
		stamp string
		want  built
	}{
		{"a clone", info("v1.2.3+dirty", clone...), "", built{"v1.2.3+dirty", commit, date, true, "go1.26.8"}},
		{"a clone with a stamp too", info("v1.2.3", clone...), "v9 other 2000-01-01T00:00:00Z clean", built{"v1.2.3", commit, date, true, "go1.26.8"}},
		{"a worktree", info("(devel)"), "v1.2.3 " + commit + " " + date + " modified", built{"v1.2.3", commit, date, true, "go1.26.8"}},
		{"a worktree of what is no release", info("(devel)"), "devel " + commit + " " + date + " clean", built{"devel", commit, date, false, "go1.26.8"}},
		{"go install of a release", info("v1.2.3"), "", built{"v1.2.3", "", "", false, "go1.26.8"}},
		{"no repository", info("(devel)"), "", built{"devel", "", "", false, "go1.26.8"}},
		{"git failed half way", info(""), "devel  " + commit, built{"devel", "", "", false, "go1.26.8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := buildOf(c.info, c.stamp); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
