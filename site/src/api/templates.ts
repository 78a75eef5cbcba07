// What can be done to a template's versions.
import { post, send } from "./client";
import { standard } from "./queries";
import type { CreateTemplateVersionRequest, Template, TemplateVersion, VariableValue } from "./types";

type Version = Omit<CreateTemplateVersionRequest, "storage_method" | "provisioner">;

// createVersion imports a version in an organization: the default one without its name.
export const createVersion = (version: Version, organization = standard) =>
  post("organizations/{organization}/templateversions", {
    organization,
    body: { ...version, storage_method: "file", provisioner: "terraform" },
  });

// reimport imports a version's files again with other values for its variables. template gets the new version; it is
// undefined if it does not exist yet.
export const reimport = (
  { job, message, organization_id }: TemplateVersion,
  values: VariableValue[],
  template: Template | undefined,
) =>
  createVersion(
    {
      file_id: job.file_id,
      tags: job.tags,
      message,
      user_variable_values: values,
      ...(template ? { template_id: template.id } : {}),
    },
    organization_id,
  );

export const archiveVersion = ({ id, archived }: TemplateVersion) =>
  send(
    archived ? "POST templateversions/{templateversion}/unarchive" : "POST templateversions/{templateversion}/archive",
    { templateversion: id },
  );

export const activateVersion = (template: string, version: string) =>
  send("PATCH templates/{template}/versions", { template, body: { id: version } });
