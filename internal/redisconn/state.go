package redisconn

import (
	"errors"
	"fmt"
	"strings"
)

// judgeState checks the eviction policy, the persistence, and whether the server accepts writes. It warns if the server hides one of these.
func (h *Health) judgeState(info map[string]string, a answers) error {
	if info["loading"] == "1" {
		return errors.New("it loads its data from its disk, and answers nothing else until that is done")
	}
	settings, err := a.readSettings()
	if err != nil {
		return err
	}
	policy, limit := info["maxmemory_policy"], h.onlyServer().MemoryLimit
	known := policy != "" && limit != nil
	if known && *limit != 0 && policy != "noeviction" {
		if strings.HasPrefix(policy, "allkeys") {
			return fmt.Errorf("%w: its maxmemory-policy %s drops locks when memory is short; set maxmemory-policy noeviction", ErrUnfit, printableText(policy, mostText))
		}
		h.addWarning(evictionCode, "Redis' maxmemory-policy is %s: it may drop pools, locks of cronclave lock, and the history when memory is short; set maxmemory-policy noeviction", printableText(policy, mostText))
	}
	if !known || h.onlyServer().Persistence == "" {
		h.warnHidden()
	}
	h.judgePersistence(settings)
	h.judgeWrites(info, settings)
	return nil
}

// judgePersistence warns if the server may lose data in a restart.
func (h *Health) judgePersistence(settings map[string]string) {
	save, known := settings[saveSetting]
	switch {
	case h.onlyServer().Persistence != NoAppendOnly:
	case !known:
		h.addWarning("settings_hidden", "Redis has no append-only file, and hides whether it keeps snapshots: its restart may forget runs that no replica that is up remembers; set appendonly yes")
	case save == "":
		h.onlyServer().Persistence = NoPersistence
		h.addWarning("no_persistence", "Redis keeps nothing on disk: after its restart only replicas that are up remember the runs; set appendonly yes")
	default:
		h.onlyServer().Persistence = Snapshots
		h.addWarning("snapshots_only", "Redis keeps snapshots only: its restart forgets the last minutes, which only replicas that are up remember; set appendonly yes")
	}
}

// judgeWrites warns if the server refuses writes until an operator acts.
func (h *Health) judgeWrites(info, settings map[string]string) {
	fault := ""
	switch {
	case h.onlyServer().Persistence == AppendOnly && info["aof_last_write_status"] == "err":
		fault = "it cannot write to its append-only file; look for a full disk, and at its log"
	case isFull(info):
		fault = "its memory is full; raise maxmemory, or delete data"
	case info["rdb_last_bgsave_status"] != "err" || settings[stopSetting] == "no":
	case settings[stopSetting] == "":
		h.addWarning(refusedCode, "Redis' last snapshot failed: unless stop-writes-on-bgsave-error is no, it refuses writes; look for a full disk, and at its log")
	case settings[saveSetting] != "":
		fault = "its last snapshot failed; look for a full disk, and at its log"
	}
	if fault != "" {
		h.onlyServer().State, h.onlyServer().Fault = ServerReadOnly, "it refuses writes: "+fault
		h.addWarning(refusedCode, "Redis refuses writes: %s", fault)
	}
}

// isFull reports whether a server with maxmemory-policy noeviction has reached maxmemory. Like Redis, it does not count some buffers.
func isFull(info map[string]string) bool {
	used, limit, apart := parseCount(info["used_memory"]), parseCount(info["maxmemory"]), parseCount(info["mem_not_counted_for_evict"])
	if used == nil || limit == nil || *limit == 0 || info["maxmemory_policy"] != "noeviction" {
		return false
	}
	if apart != nil {
		*used -= *apart
	}
	return *used > *limit
}

// isAnswering reports whether a server answers as a master.
func (s Server) isAnswering() bool { return s.State == ServerUp || s.State == ServerReadOnly }

func (h *Health) warnHidden() {
	h.addWarning("settings_hidden", "Redis hides its settings: make sure that maxmemory-policy is noeviction and that appendonly is on")
}
