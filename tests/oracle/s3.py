"""Copies of checkpoints in S3 as other clients see them: moto's server, which checks signatures and rights, and boto3.

  s3.py BIN     a run writes to S3 with the rights that docs/train.md names, loses its disk, and goes on
"""
import os
import pathlib
import subprocess
import sys
import tempfile

BOOT_REQUESTS = 4  # of this script, before rights are asked for
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(BOOT_REQUESTS)
import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

RIGHTS = """{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::models"},
  {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::models/*"}]}"""
# Its checkpoint has a file of several parts, which have 10 MB each.
MODEL = """num_layers: 2
hidden_size: 384
num_attention_heads: 4
seq_length: 64
max_position_embeddings: 64
pos_emb: rotary
data_path: data_text_document
tokenizer_type: HFTokenizer
vocab_file: tokenizer.json
train_batch_size: 2
optimizer: {type: Adam, params: {lr: 1.0e-3}}
lr_decay_iters: 8
save: run
load: run
checkpoint_factor: 2
s3_path: s3://models/a b
"""


def make_server():
    """A bucket, and the environment of a user who has the rights above and no others."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    url = "http://%s:%d" % server.get_host_and_port()
    at = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="root", aws_secret_access_key="root")
    iam = boto3.client("iam", **at)
    boto3.client("s3", **at).create_bucket(Bucket="models")
    iam.create_user(UserName="trainer")
    iam.put_user_policy(UserName="trainer", PolicyName="copies", PolicyDocument=RIGHTS)
    key = iam.create_access_key(UserName="trainer")["AccessKey"]
    return dict(AWS_ENDPOINT_URL=url, AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true",
                AWS_ACCESS_KEY_ID=key["AccessKeyId"], AWS_SECRET_ACCESS_KEY=key["SecretAccessKey"])


def run(code, environment, *command):
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert done.returncode == code, f"{command} ended with {done.returncode}, not {code}:\n{text}"
    return text


def same_as_on_disk(environment, save):
    client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"], region_name="us-east-1",
                          aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                          aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"])
    found = client.list_objects_v2(Bucket="models", Prefix="a b/run/global_step")["Contents"]
    objects = {o["Key"].removeprefix("a b/run/") for o in found}
    files = {str(f.relative_to(save)) for f in save.rglob("global_step*/*") if f.is_file()}
    assert objects == files, f"objects {sorted(objects)}, files {sorted(files)}"
    for name in files:
        body = client.get_object(Bucket="models", Key=f"a b/run/{name}")["Body"].read()
        assert body == (save / name).read_bytes(), f"{name} is another in S3"
    return max((save / name).stat().st_size for name in files), len(files)


def main(bin_dir):
    bin_dir = pathlib.Path(bin_dir).resolve()
    environment = make_server()
    with tempfile.TemporaryDirectory() as dir:
        os.chdir(dir)
        pathlib.Path("text").write_text("".join(f"Line {i}: {i * 7919 % 1000} foxes sleep.\n%\n" for i in range(2000)))
        run(0, {}, bin_dir / "neox-prepare-data", "--input", "text", "--output-prefix", "data", "--tokenizer-type", "HFTokenizer",
            "--vocab-file", "tokenizer.json", "--train-tokenizer", "300", "--split-on", "%", "--append-eod", "--workers", "1")
        pathlib.Path("run.yml").write_text(MODEL)
        train = [bin_dir / "neox-train", "run.yml"]
        text = run(74, {**environment, "AWS_SECRET_ACCESS_KEY": "wrong"}, *train, "--set", "train_iters=4")
        assert "SIGNATURE_DOES_NOT_MATCH" in text and "s3_path" in text, text
        text = run(74, environment, *train, "--set", "train_iters=4", "--set", "s3_path=s3://others/a")
        assert "s3://others/a/run" in text, text
        run(0, environment, *train, "--set", "train_iters=4")
        largest, files = same_as_on_disk(environment, pathlib.Path("run"))
        assert largest > 2 * 10e6, f"the largest file has {largest} bytes"
        lost = pathlib.Path("run")
        lost.rename("lost")
        text = run(0, environment, *train, "--set", "train_iters=6")
        assert "resuming from run/global_step4" in text, text
        for file in pathlib.Path("lost/global_step4").iterdir():
            assert file.read_bytes() == (lost / "global_step4" / file.name).read_bytes(), file
    print(f"{files} objects are the files, up to {largest / 1e6:.0f} MB; the run went on from them")


if __name__ == "__main__":
    main(sys.argv[1])
