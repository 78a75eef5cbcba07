package sdk

import (
	"context"
	"io"
	"net/url"
	"time"

	"github.com/google/uuid"
)

// AgentFileKind is what an entry of a folder is.
type AgentFileKind string

const (
	AgentFileRegular AgentFileKind = "file"
	AgentFileFolder  AgentFileKind = "folder"
	AgentFileLink    AgentFileKind = "link"
	AgentFileOther   AgentFileKind = "other" // a device, a pipe, a socket
)

// AgentFiles is a folder in a workspace.
type AgentFiles struct {
	// Path is the folder's absolute path. One of Windows begins with a slash: /C:/Users.
	Path  string          `json:"path"`
	Files List[AgentFile] `json:"files"` // by name
	// Cut says that the folder has more entries than the answer.
	Cut bool `json:"cut"`
}

// AgentFile is an entry of a folder in a workspace.
type AgentFile struct {
	Name string        `json:"name"`
	Kind AgentFileKind `json:"kind"`
	// Size is in bytes; of a link, the size of what it leads to, if that is known.
	Size int64 `json:"size"`
	// Mode has the kind and the permissions as in "ls -l": -rw-r--r--.
	Mode       string    `json:"mode"`
	ModifiedAt time.Time `json:"modified_at"`
	// LinkTarget is where a link leads, and LinkKind what is there; absent for others, for broken links, and beyond
	// the first 256 links of a folder.
	LinkTarget string        `json:"link_target,omitempty"`
	LinkKind   AgentFileKind `json:"link_kind,omitempty"`
}

// RenameAgentFileRequest moves a file or folder of a workspace.
type RenameAgentFileRequest struct {
	Path    string `json:"path"`
	NewPath string `json:"new_path"` // must not exist
}

// AgentFile writes a file of a workspace to w. A relative path, and one that begins with ~, is below the folder in
// which sessions begin.
func (c *Client) AgentFile(ctx context.Context, agent uuid.UUID, path string, w io.Writer) error {
	return c.download(ctx, "workspaceagents/"+agent.String()+"/files/content?path="+url.QueryEscape(path), w)
}
