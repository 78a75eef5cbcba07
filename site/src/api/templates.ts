// What can be done to a template's versions.
import { send } from "./client";
import { org } from "./queries";
import type { CreateTemplateVersionRequest, TemplateVersion, UpdateActiveVersionRequest, VariableValue } from "./types";

type Version = Omit<CreateTemplateVersionRequest, "storage_method" | "provisioner">;

export const createVersion = (version: Version) =>
  send<TemplateVersion>("POST", `${org}/templateversions`, {
    ...version,
    storage_method: "file",
    provisioner: "terraform",
  } satisfies CreateTemplateVersionRequest);

// reimport imports a version's files again with other values for its variables. template: the id of the template that
// gets the new version; undefined if it does not exist yet.
export const reimport = ({ job, message }: TemplateVersion, values: VariableValue[], template: string | undefined) =>
  createVersion({
    file_id: job.file_id,
    tags: job.tags,
    message,
    user_variable_values: values,
    ...(template ? { template_id: template } : {}),
  });

export const activateVersion = (template: string, version: string) =>
  send("PATCH", `templates/${template}/versions`, { id: version } satisfies UpdateActiveVersionRequest);
