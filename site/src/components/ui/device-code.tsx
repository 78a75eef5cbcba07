import type { ExternalAuthDevice } from "~/api/types";
import { CopyLine } from "./copy";
import { Note } from "./note";

// DeviceCode shows a code, and where to enter it.
export function DeviceCode({ of: device }: { of: ExternalAuthDevice }) {
  return (
    <>
      <p className="break-words">
        Enter this code at{" "}
        <a className="underline" href={device.verification_uri} target="_blank" rel="noreferrer">
          {device.verification_uri}
        </a>
        :
      </p>
      <CopyLine label="code" text={device.user_code} />
      <Note tone="warn">Enter only a code that you see here, and only if you started this sign-in yourself.</Note>
    </>
  );
}
