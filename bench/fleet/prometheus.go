package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"atys.dev/atys/test/vacant"
)

// startPrometheus has a real one ask each agent, as deploy/prometheus has it do.
func startPrometheus(dir string, instances, port int) (*daemon, error) {
	var targets []string
	for i := range instances {
		targets = append(targets, net.JoinHostPort(address(i).String(), strconv.Itoa(port)))
	}
	list, err := json.Marshal([]map[string]any{{"targets": targets}})
	if err != nil {
		return nil, err
	}
	config := "global:\n  scrape_interval: 15s\nscrape_configs:\n  - job_name: atys-agents\n    honor_labels: true\n    file_sd_configs:\n      - files: [targets.json]\n"
	for name, content := range map[string][]byte{"targets.json": list, "prometheus.yml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	own, err := vacant.Port()
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("127.0.0.1:%d", own)
	return startDaemon(at, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+at)
}
