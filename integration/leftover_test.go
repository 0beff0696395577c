package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// ownerLabel says on a container which process started it. A test binary whose time is up ends without its clean-up;
// the next one removes what it left.
const ownerLabel = "com.github.cronclave.test-owner"

// owner names this process: process ids of one host name are of one namespace.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// orphaned returns whether the process that the label names is gone, which only its own host can know.
func orphaned(label string) bool {
	host, id, _ := strings.Cut(label, "/")
	here, err := os.Hostname()
	pid, parseErr := strconv.Atoi(id)
	if err != nil || parseErr != nil || host != here || pid <= 1 {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// removeLeftovers removes the containers of test binaries that are gone.
func removeLeftovers(ctx context.Context, engine *testcontainers.DockerProvider) error {
	ours := client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", ownerLabel)}
	list, err := engine.Client().ContainerList(ctx, ours)
	if err != nil {
		return fmt.Errorf("list containers left by earlier tests: %w", err)
	}
	for _, c := range list.Items {
		if !orphaned(c.Labels[ownerLabel]) {
			continue
		}
		remove := client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}
		if _, err := engine.Client().ContainerRemove(ctx, c.ID, remove); err != nil {
			return fmt.Errorf("remove a container left by earlier tests: %w", err)
		}
	}
	return nil
}
